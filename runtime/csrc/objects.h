// What the Python objects of the module share.  Only the stable interface of CPython 3.11 is used.
#ifndef POPC_OBJECTS_H
#define POPC_OBJECTS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program.h"

typedef struct {
    PyObject_HEAD Program *program;
    PyObject *calls;  // tuple: what callbacks call
    PyObject *kept;  // whatever owns the memory that the program reads and writes
    int64_t
        running;  // what `pool_generation` gives the process that runs it, and 0 while none does
} ProgramObject;

// What a run gives the functions that it calls; its callback may know more, behind it.
typedef struct { PyThreadState *thread; } Caller;

// Runs a program to its end, without the interpreter's lock; what `program_run` gives, or -1 with an
// exception set.
int64_t run_object(
    ProgramObject *object, int threads, int64_t deadline, CallbackFn callback, Caller *caller);

// The type of runs on arrays: see direct.c.
extern PyType_Spec direct_spec;

#endif
