// What this processor can do, as far as the operating system lets it.
#ifndef POPC_PROCESSOR_H
#define POPC_PROCESSOR_H

#include <stdbool.h>

bool processor_has_v3(void);  // AVX2, FMA, F16C, BMI2
bool processor_has_v4(void);  // and AVX-512 F, BW, DQ, VL
bool processor_has_avx512_vnni(void);
bool processor_has_avx_vnni(void);
bool processor_has_sha(void);  // and SSE4.1

#endif
