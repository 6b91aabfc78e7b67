// Runs of a program on numpy's arrays in one call: inputs are looked at, and copied to the device
// unless all kernels read them where they are (landings.h); results come in new arrays, or in those of
// the caller.  What is not exactly as the program wants it is left to Python, which converts it, or
// says what is wrong.
#include <string.h>

#include "spares.h"

// Where a stream meets the program: all of it moves at once.
typedef struct {
    PyObject *name;
    const char *format;  // of the elements, as the buffer protocol has it
    PyObject *format_bytes;  // which owns it
    PyObject *arguments;  // of an output: what `empty` makes an array of, its shape and type
    Spare *spare;  // of a large output, else NULL
    char *memory;  // of the device
    Py_ssize_t bytes;
    Py_ssize_t landing;  // of what is read or written where its array is; else -1
    int rank;
    Py_ssize_t *dims;
} Port;

typedef struct {
    PyObject_HEAD ProgramObject *program;
    PyObject *array_type, *empty, *block_type;
    PyObject *fail;  // called with the number of a record and why it failed, to raise an error
    int threads;
    bool stores_last;  // no kernel runs after the first output has been written
    Py_ssize_t inputs, count;  // of ports: those of inputs come first
    Port *ports;
    Py_ssize_t *by_step;  // the number of the port of each callback
} DirectObject;

typedef struct {
    Caller caller;
    const DirectObject *direct;
    Py_buffer *buffers;  // of each port
    bool fresh;  // nobody else knows the arrays of results yet: kernels may write to them
} Transfer;

// -- making one -----------------------------------------------------------------------------------

static int read_dims(Port *port, PyObject *shape) {
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank < 0) return -1;
    port->dims = PyMem_Calloc((size_t)rank + 1, sizeof(Py_ssize_t));
    if (!port->dims) {
        PyErr_NoMemory();
        return -1;
    }
    port->rank = (int)rank;
    for (Py_ssize_t axis = 0; axis < rank; axis++) {
        port->dims[axis] = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

// (name, step, memory, format, shape, arguments of `empty`, number of the landing or -1)
static int read_port(DirectObject *direct, Py_ssize_t number, PyObject *given) {
    Port *port = &direct->ports[number];
    PyObject *name, *format, *shape, *arguments;
    Py_ssize_t step;
    Py_buffer memory;
    if (!PyArg_ParseTuple(
            given, "Unw*SO!O!n", &name, &step, &memory, &format, &PyTuple_Type, &shape,
            &PyTuple_Type, &arguments, &port->landing))
        return -1;
    if (!landing_is_free(program_landings(direct->program->program), port->landing))
        port->landing = -1;
    port->memory = memory.buf;  // which the program keeps
    port->bytes = memory.len;
    PyBuffer_Release(&memory);
    if (step < 0 || step >= direct->count || direct->by_step[step] >= 0) {
        PyErr_SetString(PyExc_ValueError, "a callback has no port, or several");
        return -1;
    }
    direct->by_step[step] = number;
    port->name = Py_NewRef(name);
    port->format_bytes = Py_NewRef(format);
    port->format = PyBytes_AsString(format);
    port->arguments = Py_NewRef(arguments);
    const bool large = port->bytes >= LEAST_SPARE && number >= direct->inputs;
    if (large && !(port->spare = spare_new(port->bytes))) return -1;
    return port->format ? read_dims(port, shape) : -1;
}

static int read_ports(DirectObject *direct, PyObject *inputs, PyObject *outputs) {
    direct->inputs = PyTuple_Size(inputs);
    const Py_ssize_t count = direct->inputs + PyTuple_Size(outputs);
    if (PyTuple_Size(direct->program->calls) != count) {
        PyErr_SetString(PyExc_ValueError, "there are as many callbacks as ports");
        return -1;
    }
    direct->ports = PyMem_Calloc((size_t)count + 1, sizeof(Port));
    direct->by_step = PyMem_Calloc((size_t)count + 1, sizeof(Py_ssize_t));
    if (!direct->ports || !direct->by_step) {
        PyErr_NoMemory();
        return -1;
    }
    direct->count = count;
    for (Py_ssize_t step = 0; step < count; step++) direct->by_step[step] = -1;
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *given = number < direct->inputs
                              ? PyTuple_GetItem(inputs, number)
                              : PyTuple_GetItem(outputs, number - direct->inputs);
        if (!given || read_port(direct, number, given)) return -1;
    }
    return 0;
}

// Direct(program, inputs, outputs, array type, empty, block type, fail, threads, stores last)
static PyObject *direct_make(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    PyObject *program, *inputs, *outputs, *array_type, *empty, *block_type, *fail;
    int threads, stores_last;
    if (!PyArg_ParseTuple(
            args, "OO!O!OOOOip", &program, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
            &array_type, &empty, &block_type, &fail, &threads, &stores_last))
        return NULL;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    DirectObject *direct = (DirectObject *)allocate(type, 0);
    if (!direct) return NULL;
    direct->program = (ProgramObject *)Py_NewRef(program);
    direct->array_type = Py_NewRef(array_type);
    direct->empty = Py_NewRef(empty);
    direct->block_type = Py_NewRef(block_type);
    direct->fail = Py_NewRef(fail);
    direct->threads = threads;
    direct->stores_last = stores_last;
    if (!read_ports(direct, inputs, outputs)) return (PyObject *)direct;
    Py_DECREF(direct);
    return NULL;
}

static int direct_clear(PyObject *self) {
    DirectObject *direct = (DirectObject *)self;
    Py_CLEAR(direct->program);
    Py_CLEAR(direct->array_type);
    Py_CLEAR(direct->empty);
    Py_CLEAR(direct->block_type);
    Py_CLEAR(direct->fail);
    return 0;
}

static void direct_dealloc(PyObject *self) {
    DirectObject *direct = (DirectObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    direct_clear(self);
    for (Py_ssize_t number = 0; number < direct->count; number++) {
        Port *port = &direct->ports[number];
        Py_CLEAR(port->name);
        Py_CLEAR(port->format_bytes);
        Py_CLEAR(port->arguments);
        spare_close(port->spare);
        PyMem_Free(port->dims);
    }
    PyMem_Free(direct->ports);
    PyMem_Free(direct->by_step);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int direct_traverse(PyObject *self, visitproc visit, void *arg) {
    const DirectObject *direct = (DirectObject *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(direct->program);
    Py_VISIT(direct->array_type);
    Py_VISIT(direct->empty);
    Py_VISIT(direct->block_type);
    Py_VISIT(direct->fail);
    return 0;
}

// -- running --------------------------------------------------------------------------------------

// Kernels write results where their arrays are.
static int begin(const Transfer *transfer) {
    const DirectObject *direct = transfer->direct;
    const Landings *landings = program_landings(direct->program->program);
    for (Py_ssize_t number = direct->inputs; transfer->fresh && number < direct->count; number++) {
        const Py_ssize_t landing = direct->ports[number].landing;
        if (landing >= 0) landing_move(landings, landing, transfer->buffers[number].buf);
    }
    return 0;
}

static int move(void *context, int64_t step) {
    const Transfer *transfer = context;
    const DirectObject *direct = transfer->direct;
    if (step == RUN_BEGINS) return begin(transfer);
    const Py_ssize_t number = direct->by_step[step];
    const Port *port = &direct->ports[number];
    char *array = transfer->buffers[number].buf;
    if (number >= direct->inputs) {
        if (port->landing >= 0 && transfer->fresh) return 0;
        memcpy(array, port->memory, (size_t)port->bytes);
    } else if (port->landing >= 0) {
        landing_move(program_landings(direct->program->program), port->landing, array);
    } else {
        memcpy(port->memory, array, (size_t)port->bytes);
    }
    return 0;
}

// Takes the memory of an array of the caller's.  False if it is none of the type and shape of the port,
// without gaps and aligned to its elements (else numpy's format has a prefix), or if there is an
// exception.
static bool take_array(
    const DirectObject *direct, const Port *port, PyObject *array, int flags, Py_buffer *buffer) {
    if (!array || (PyObject *)Py_TYPE(array) != direct->array_type ||
        PyObject_GetBuffer(array, buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | flags))
        return false;
    bool fits = buffer->ndim == port->rank && strcmp(buffer->format, port->format) == 0;
    for (int axis = 0; fits && axis < port->rank; axis++)
        fits = buffer->shape[axis] == port->dims[axis];
    if (fits && buffer->len == port->bytes) return true;
    PyBuffer_Release(buffer);
    return false;
}

static bool is_apart(const Py_buffer *buffer, const Py_buffer *others, Py_ssize_t count) {
    const char *start = buffer->buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *other = others[i].buf;
        if (start < other + others[i].len && other < start + buffer->len) return false;
    }
    return true;
}

// The memory of so many ports has been taken.
typedef struct {
    Py_buffer *buffers;
    Py_ssize_t count;
} Taken;

// False if an input is not as it should be, or there is an exception; so do those below.
static bool take_inputs(const DirectObject *direct, PyObject *given, Taken *taken) {
    for (; taken->count < direct->inputs; taken->count++) {
        const Port *port = &direct->ports[taken->count];
        PyObject *array = PyDict_GetItemWithError(given, port->name);
        if (!take_array(direct, port, array, 0, &taken->buffers[taken->count])) return false;
    }
    return true;
}

// An array of the caller's, or a new one; NULL with an exception.
static PyObject *find_array(const DirectObject *direct, const Port *port, PyObject *out) {
    PyObject *array = out ? PyDict_GetItemWithError(out, port->name) : NULL;
    if (array) return Py_NewRef(array);
    if (PyErr_Occurred()) return NULL;
    if (!port->spare) return PyObject_Call(direct->empty, port->arguments, NULL);
    return spare_array(port->spare, direct->block_type, direct->array_type, port->arguments);
}

static bool take_result(
    const DirectObject *direct, PyObject *out, PyObject *results, Taken *taken) {
    const Port *port = &direct->ports[taken->count];
    Py_buffer *buffer = &taken->buffers[taken->count];
    PyObject *array = find_array(direct, port, out);
    const bool fits = array && take_array(direct, port, array, PyBUF_WRITABLE, buffer);
    taken->count += fits;
    const bool kept = fits && !PyDict_SetItem(results, port->name, array);
    Py_XDECREF(array);
    return kept;
}

static bool take_results(
    const DirectObject *direct, PyObject *out, PyObject *results, Taken *taken) {
    Py_ssize_t found = 0;
    while (taken->count < direct->count) {
        const Py_ssize_t number = taken->count;
        if (!take_result(direct, out, results, taken)) return false;
        if (!out) continue;
        const int own = PyDict_Contains(out, direct->ports[number].name);
        if (own < 0) return false;
        found += own;
        // Results that share memory are for Python to refuse.
        const Py_buffer *first = taken->buffers + direct->inputs;
        if (!is_apart(&taken->buffers[number], first, number - direct->inputs)) return false;
    }
    return !out || PyDict_Size(out) == found;
}

// What `fail` raises for the record that stopped the program.
static void raise_failure(const DirectObject *direct, const Py_buffer *buffers, int64_t failed) {
    // Whoever looks for its reason finds in the memory of the device what kernels have read.
    for (Py_ssize_t number = 0; number < direct->inputs; number++) {
        const Port *port = &direct->ports[number];
        if (port->landing >= 0) memcpy(port->memory, buffers[number].buf, (size_t)port->bytes);
    }
    PyObject *result = PyObject_CallFunction(
        direct->fail, "Li", (long long)(failed - 1),
        (int)program_failure(direct->program->program));
    if (result) PyErr_SetString(PyExc_RuntimeError, "a kernel failed");
    Py_XDECREF(result);
}

static PyObject *run_on_arrays(
    const DirectObject *direct, PyObject *given, PyObject *out, Py_buffer *buffers) {
    PyObject *results = PyDict_New();
    Taken taken = {buffers, 0};
    const bool fits = results && take_inputs(direct, given, &taken) &&
                      take_results(direct, out, results, &taken);
    int64_t failed = 0;
    if (fits) {
        Transfer transfer = {{NULL}, direct, buffers, out == NULL};
        failed = run_object(direct->program, direct->threads, 0, move, &transfer.caller);
        if (failed > 0) raise_failure(direct, buffers, failed);
    }
    while (taken.count > 0) PyBuffer_Release(&buffers[--taken.count]);
    if (fits && !failed) return results;
    Py_XDECREF(results);
    if (!fits && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

// run(inputs, out): the results by name; None if nothing has run, because what is given is not exactly
// what the program takes.
static PyObject *direct_run(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    enum { FEW = 16 };  // buffers that need no allocation
    const DirectObject *direct = (DirectObject *)self;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "run takes inputs and out");
        return NULL;
    }
    PyObject *given = args[0], *out = args[1] == Py_None ? NULL : args[1];
    if (!PyDict_CheckExact(given) || PyDict_Size(given) != direct->inputs) Py_RETURN_NONE;
    if (out && (!PyDict_CheckExact(out) || !direct->stores_last)) Py_RETURN_NONE;
    Py_buffer few[FEW], *buffers = few;
    if (direct->count > FEW) buffers = PyMem_Calloc((size_t)direct->count, sizeof(Py_buffer));
    if (!buffers) return PyErr_NoMemory();
    PyObject *results = run_on_arrays(direct, given, out, buffers);
    if (buffers != few) PyMem_Free(buffers);
    return results;
}

// Names of the ports first .. end - 1 whose arrays kernels use where they are.
static PyObject *list_landings(const DirectObject *direct, Py_ssize_t first, Py_ssize_t end) {
    PyObject *names = PyList_New(0);
    for (Py_ssize_t number = first; names && number < end; number++) {
        const Port *port = &direct->ports[number];
        if (port->landing >= 0 && PyList_Append(names, port->name)) Py_CLEAR(names);
    }
    return names;
}

static PyObject *direct_lent(PyObject *self, PyObject *unused) {
    (void)unused;
    const DirectObject *direct = (DirectObject *)self;
    return list_landings(direct, 0, direct->inputs);
}

static PyObject *direct_filled(PyObject *self, PyObject *unused) {
    (void)unused;
    const DirectObject *direct = (DirectObject *)self;
    return list_landings(direct, direct->inputs, direct->count);
}

static PyMethodDef direct_methods[] = {
    {"lent", direct_lent, METH_NOARGS, "lent(): inputs that runs read where they are."},
    {"filled", direct_filled, METH_NOARGS, "filled(): results that runs write where they are."},
    {"run", (PyCFunction)(void (*)(void))direct_run, METH_FASTCALL,
     "run(inputs, out): the results by name, or None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot direct_slots[] = {
    {Py_tp_new, direct_make},
    {Py_tp_dealloc, direct_dealloc},
    {Py_tp_traverse, direct_traverse},
    {Py_tp_clear, direct_clear},
    {Py_tp_methods, direct_methods},
    {Py_tp_doc, "Direct(program, inputs, outputs, array type, empty, fail, threads, stores last)"},
    {0, NULL},
};

PyType_Spec direct_spec = {
    .name = "popc_runtime.native._native.Direct",
    .basicsize = sizeof(DirectObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = direct_slots,
};
