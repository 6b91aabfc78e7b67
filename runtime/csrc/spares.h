// Memory of results that is used again: the system would have to provide each page of new memory, which
// takes longer than most kernels do.  An array keeps the block that its elements lie in alive, as does
// all that views them; the last of them gives the memory back.
#ifndef POPC_SPARES_H
#define POPC_SPARES_H

#include "objects.h"

// Smaller results take what the allocator has at hand; bytes.
enum { LEAST_SPARE = 1 << 16 };

// For one result of a program: its memory while nobody has it, or NULL.  The interpreter's lock guards it.
typedef struct {
    Py_ssize_t bytes;
    Py_ssize_t users;  // the program, and blocks
    void *memory;
    bool closed;  // no run is going to ask any more
} Spare;

// NULL with an exception.
Spare *spare_new(Py_ssize_t bytes);

// Frees its memory as soon as nobody has it.
void spare_close(Spare *spare);

// A new array, from numpy's type and the shape and type of its elements, which mean nothing yet; NULL
// with an exception.
PyObject *spare_array(
    Spare *spare, PyObject *block_type, PyObject *array_type, PyObject *shape_and_type);

extern PyType_Spec block_spec;

#endif
