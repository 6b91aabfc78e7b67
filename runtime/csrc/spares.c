#include "spares.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    LINE = 64,
    LARGE = 1 << 22,  // bytes of what lies in large pages, where the system has them
    LARGE_PAGE = 1 << 21,
};

typedef struct {
    PyObject_HEAD Spare *spare;
    void *memory;
} Block;

static void *allocate(Py_ssize_t bytes) {
    void *memory;
    if (posix_memalign(&memory, bytes < LARGE ? LINE : LARGE_PAGE, (size_t)bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LARGE) madvise(memory, (size_t)bytes, MADV_HUGEPAGE);  // a wish
#endif
    return memory;
}

Spare *spare_new(Py_ssize_t bytes) {
    Spare *spare = calloc(1, sizeof(Spare));
    if (!spare) {
        PyErr_NoMemory();
        return NULL;
    }
    spare->bytes = bytes;
    spare->users = 1;
    return spare;
}

static void leave(Spare *spare) {
    if (--spare->users == 0) free(spare);
}

void spare_close(Spare *spare) {
    if (!spare) return;
    free(spare->memory);
    spare->memory = NULL;
    spare->closed = true;
    leave(spare);
}

static PyObject *take(Spare *spare, PyTypeObject *block_type) {
    allocfunc make = PyType_GetSlot(block_type, Py_tp_alloc);
    Block *block = (Block *)make(block_type, 0);
    if (!block) return NULL;
    block->memory = spare->memory ? spare->memory : allocate(spare->bytes);
    spare->memory = NULL;
    block->spare = spare;
    spare->users++;
    if (block->memory) return (PyObject *)block;
    Py_DECREF(block);
    return PyErr_NoMemory();
}

PyObject *spare_array(
    Spare *spare, PyObject *block_type, PyObject *array_type, PyObject *shape_and_type) {
    PyObject *shape = PyTuple_GetItem(shape_and_type, 0);
    PyObject *type = PyTuple_GetItem(shape_and_type, 1);
    PyObject *block = shape && type ? take(spare, (PyTypeObject *)block_type) : NULL;
    if (!block) return NULL;
    PyObject *array = PyObject_CallFunctionObjArgs(array_type, shape, type, block, NULL);
    Py_DECREF(block);
    return array;
}

static void block_dealloc(PyObject *self) {
    Block *block = (Block *)self;
    PyTypeObject *type = Py_TYPE(self);
    Spare *spare = block->spare;
    if (spare) {
        if (spare->closed || spare->memory)
            free(block->memory);
        else
            spare->memory = block->memory;
        leave(spare);
    }
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int block_buffer(PyObject *self, Py_buffer *view, int flags) {
    const Block *block = (Block *)self;
    return PyBuffer_FillInfo(view, self, block->memory, block->spare->bytes, 0, flags);
}

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_dealloc},
    {Py_bf_getbuffer, block_buffer},
    {Py_tp_doc, "The memory of a result, which a later run uses again once nothing refers to it."},
    {0, NULL},
};

PyType_Spec block_spec = {
    .name = "popc_runtime.native._native.Block",
    .basicsize = sizeof(Block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};
