// SHA-256 by the processor's own instructions.  What else there is, OpenSSL in Python's hashlib,
// takes longer to load than the weights of a small model take to hash.
#ifndef POPC_SHA256_H
#define POPC_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

// To be called only if `processor_has_sha`.
void sha256(const uint8_t *data, size_t size, uint8_t digest[SHA256_BYTES]);

#endif
