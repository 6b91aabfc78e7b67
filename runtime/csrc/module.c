// The Python module: programs as objects.
#include "objects.h"

#include <string.h>

#include "processor.h"
#include "sha256.h"
#include "spares.h"

// -- kinds of processors --------------------------------------------------------------------------

typedef struct {
    const char *name;
    const Kernel *const *families;
} Variant;

// What this processor runs, the best first.
static int find_variants(Variant variants[3]) {
    int count = 0;
#if defined(__x86_64__)
    if (processor_has_v4()) variants[count++] = (Variant){"x86-64-v4", FAMILIES_V4};
    if (processor_has_v3()) variants[count++] = (Variant){"x86-64-v3", FAMILIES_V3};
#elif defined(__aarch64__)
    variants[count++] = (Variant){"aarch64", FAMILIES_BASELINE};
#endif
    return count;
}

static PyObject *variants(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Variant found[3];
    int count = find_variants(found);
    PyObject *names = PyList_New(count);
    for (int i = 0; names && i < count; i++)
        PyList_SetItem(names, i, PyUnicode_FromString(found[i].name));
    return names;
}

static const Kernel *const *families_of(const char *name) {
    Variant found[3];
    int count = find_variants(found);
    for (int i = 0; i < count; i++)
        if (strcmp(found[i].name, name) == 0) return found[i].families;
    PyErr_Format(PyExc_ValueError, "this processor does not run %s", name);
    return NULL;
}

static PyObject *kernel_numbers(PyObject *self, PyObject *argument) {
    (void)self;
    PyObject *text = PyUnicode_AsUTF8String(argument);
    if (!text) return NULL;
    const Kernel *const *families = families_of(PyBytes_AsString(text));
    Py_DECREF(text);
    if (!families) return NULL;
    PyObject *numbers = PyDict_New();
    for (int family = 0; numbers && families[family]; family++)
        for (int index = 0; numbers && families[family][index].name; index++) {
            PyObject *number = PyLong_FromLong(family << FAMILY_BITS | index);
            if (!number || PyDict_SetItemString(numbers, families[family][index].name, number))
                Py_CLEAR(numbers);
            Py_XDECREF(number);
        }
    return numbers;
}

// -- memory ---------------------------------------------------------------------------------------

// address(buffer): where its bytes lie.
static PyObject *address_of(PyObject *self, PyObject *object) {
    (void)self;
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE)) return NULL;
    PyObject *address = PyLong_FromVoidPtr(buffer.buf);
    PyBuffer_Release(&buffer);
    return address;
}

// window(address, size): these bytes, which somebody else has to keep.
static PyObject *window(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *address;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "On", &address, &size)) return NULL;
    void *start = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) return NULL;
    return PyMemoryView_FromMemory(start, size, PyBUF_WRITE);
}

// sha256(buffer): the digest, or None if this processor has no instructions for it.
static PyObject *hash_buffer(PyObject *self, PyObject *object) {
    (void)self;
    if (!processor_has_sha()) Py_RETURN_NONE;
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE)) return NULL;
    uint8_t digest[SHA256_BYTES];
    PyThreadState *thread = PyEval_SaveThread();
    sha256(buffer.buf, (size_t)buffer.len, digest);
    PyEval_RestoreThread(thread);
    PyBuffer_Release(&buffer);
    return PyBytes_FromStringAndSize((const char *)digest, SHA256_BYTES);
}

// -- programs -------------------------------------------------------------------------------------

typedef struct {
    Caller caller;
    PyObject *calls;
} Context;

static int call_back(void *context, int64_t step) {
    Context *own = context;
    if (step == RUN_BEGINS) return 0;
    PyEval_RestoreThread(own->caller.thread);
    PyObject *call = PyTuple_GetItem(own->calls, (Py_ssize_t)step);  // NULL: there is no such step
    PyObject *result = call ? PyObject_CallNoArgs(call) : NULL;
    Py_XDECREF(result);
    own->caller.thread = PyEval_SaveThread();
    return result ? 0 : -1;
}

static int poll_signals(void *context) {
    Caller *caller = context;
    PyEval_RestoreThread(caller->thread);
    int interrupted = PyErr_CheckSignals();
    caller->thread = PyEval_SaveThread();
    return interrupted;
}

int64_t run_object(
    ProgramObject *object, int threads, int64_t deadline, CallbackFn callback, Caller *caller) {
    const int64_t process = pool_generation();
    if (object->running == process) {
        PyErr_SetString(PyExc_RuntimeError, "the program is running already");
        return -1;
    }
    object->running = process;
    caller->thread = PyEval_SaveThread();
    const int64_t failed =
        program_run(object->program, threads, deadline, callback, poll_signals, caller);
    PyEval_RestoreThread(caller->thread);
    object->running = 0;
    return PyErr_Occurred() ? -1 : failed;
}

static PyObject *raise_program_error(ProgramError error, int64_t which) {
    if (error == PROGRAM_NO_MEMORY) return PyErr_NoMemory();
    if (error == PROGRAM_STOPPED) return NULL;  // with the exception of a signal's handler
    return PyErr_Format(
        PyExc_ValueError, "record %lld is %s", (long long)which,
        error == PROGRAM_REFUSED ? "not supported" : "malformed");
}

static PyObject *program_make(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Program takes no keywords");
        return NULL;
    }
    const char *variant, *landings = NULL;
    Py_buffer words;
    Py_ssize_t landing_bytes = 0;
    PyObject *calls, *kept;
    int threads = 1;
    if (!PyArg_ParseTuple(
            args, "sy*O!O|iy#", &variant, &words, &PyTuple_Type, &calls, &kept, &threads, &landings,
            &landing_bytes))
        return NULL;
    ProgramError error = PROGRAM_MALFORMED;
    int64_t which = -1;
    Program *program = NULL;
    const Kernel *const *families = families_of(variant);
    const int64_t size = sizeof(int64_t);
    const Words own = {words.buf, words.len / size};
    const Words places = {(const int64_t *)(const void *)landings, landing_bytes / size};
    if (families) {
        Caller caller = {PyEval_SaveThread()};
        program =
            program_new(own, places, families, threads, poll_signals, &caller, &error, &which);
        PyEval_RestoreThread(caller.thread);
    }
    PyBuffer_Release(&words);
    if (!program) return families ? raise_program_error(error, which) : NULL;
    allocfunc allocate = PyType_GetSlot(type, Py_tp_alloc);
    ProgramObject *object = (ProgramObject *)allocate(type, 0);
    if (!object) {
        program_free(program);
        return NULL;
    }
    object->program = program;
    object->calls = Py_NewRef(calls);
    object->kept = Py_NewRef(kept);
    return (PyObject *)object;
}

static void program_dealloc(PyObject *self) {
    ProgramObject *object = (ProgramObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (object->program) program_free(object->program);
    Py_CLEAR(object->calls);
    Py_CLEAR(object->kept);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int program_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((ProgramObject *)self)->calls);
    Py_VISIT(((ProgramObject *)self)->kept);
    return 0;
}

static int program_clear(PyObject *self) {
    Py_CLEAR(((ProgramObject *)self)->calls);
    Py_CLEAR(((ProgramObject *)self)->kept);
    return 0;
}

// run(threads, deadline=0): None, or, if a kernel has failed or time is up, (number of its record, why).
// An exception of a callback is raised.
static PyObject *program_run_method(PyObject *self, PyObject *args) {
    ProgramObject *object = (ProgramObject *)self;
    int threads;
    long long deadline = 0;
    if (!PyArg_ParseTuple(args, "i|L", &threads, &deadline)) return NULL;
    Context context = {{NULL}, object->calls};
    const int64_t failed = run_object(object, threads, deadline, call_back, &context.caller);
    if (failed < 0) return NULL;
    if (!failed) Py_RETURN_NONE;
    return Py_BuildValue("Li", (long long)(failed - 1), (int)program_failure(object->program));
}

static PyObject *program_measure_method(PyObject *self, PyObject *argument) {
    int wanted = PyObject_IsTrue(argument);
    if (wanted < 0) return NULL;
    program_measure(((ProgramObject *)self)->program, wanted);
    Py_RETURN_NONE;
}

static PyObject *program_time_method(PyObject *self, PyObject *argument) {
    long long index = PyLong_AsLongLong(argument);
    if (index == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(program_time(((ProgramObject *)self)->program, index));
}

static PyObject *program_scratch_method(PyObject *self, PyObject *argument) {
    int64_t which;
    const long threads = PyLong_AsLong(argument);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    const int most = threads < MAX_THREADS ? (int)threads : MAX_THREADS;
    const int64_t bytes = program_scratch(((ProgramObject *)self)->program, most, &which);
    return Py_BuildValue("LL", (long long)bytes, (long long)which);
}

static PyMethodDef program_methods[] = {
    {"run", program_run_method, METH_VARARGS,
     "run(threads, deadline=0): run the program to its end."},
    {"scratch", program_scratch_method, METH_O,
     "scratch(threads): bytes, and the record that needs most of them."},
    {"measure", program_measure_method, METH_O, "measure(wanted): take times from now on, or not."},
    {"nanoseconds", program_time_method, METH_O, "nanoseconds(record): since measure()."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_new, program_make},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_traverse, program_traverse},
    {Py_tp_clear, program_clear},
    {Py_tp_methods, program_methods},
    {Py_tp_doc, "Program(variant, records, calls, kept, threads=1, landings=b'')"},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "popc_runtime.native._native.Program",
    .basicsize = sizeof(ProgramObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = program_slots,
};

static PyMethodDef module_methods[] = {
    {"variants", variants, METH_NOARGS, "Kinds of processors whose kernels run here, best first."},
    {"kernels", kernel_numbers, METH_O, "kernels(variant): numbers by name."},
    {"address", address_of, METH_O, "address(buffer): where its bytes lie."},
    {"sha256", hash_buffer, METH_O, "sha256(buffer): None if the processor has nothing for it."},
    {"window", window, METH_VARARGS, "window(address, size): these bytes, which nobody keeps."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return -1;
    const int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int fill_module(PyObject *module) {
    if (add_type(module, "Program", &program_spec) || add_type(module, "Direct", &direct_spec) ||
        add_type(module, "Block", &block_spec))
        return -1;
    PyObject *names = Py_BuildValue("[sssss]", "Block", "Direct", "Program", "kernels", "variants");
    if (!names) return -1;
    const int failed = PyModule_AddObjectRef(module, "__all__", names);
    Py_DECREF(names);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "popc_runtime.native._native",
    .m_doc = "Programs that run without Python between instructions.",
    .m_size = 0,
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module_definition); }
