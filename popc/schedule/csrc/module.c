// The Python module: tables as arrays of 64-bit integers.
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "bound.h"
#include "exact.h"

enum { COLUMNS = 16 };

typedef struct {
    Py_buffer buffers[COLUMNS + 3];
    int count;
} Held;

static void release(Held *held) {
    while (held->count > 0) PyBuffer_Release(&held->buffers[--held->count]);
}

// The numbers of an array; NULL after an exception.
static int64_t *numbers_of(Held *held, PyObject *object, int flags, int64_t *count) {
    Py_buffer *buffer = &held->buffers[held->count];
    if (!object || PyObject_GetBuffer(object, buffer, flags)) return NULL;
    held->count++;
    *count = (int64_t)(buffer->len / (Py_ssize_t)sizeof(int64_t));
    return buffer->buf;
}

// The columns of a table; false after an exception.
static bool read_table(
    Held *held, PyObject *table, int width, int64_t *columns[], int64_t counts[]) {
    for (int i = 0; i < width; i++) {
        columns[i] = numbers_of(held, PyTuple_GetItem(table, i), PyBUF_SIMPLE, &counts[i]);
        if (!columns[i]) return false;
    }
    return true;
}

// True if all numbers are at least 0 and below a limit.
static bool all_below(const int64_t *numbers, int64_t count, int64_t limit) {
    for (int64_t i = 0; i < count; i++)
        if (numbers[i] < 0 || numbers[i] >= limit) return false;
    return true;
}

static bool are_lists(Lists lists, int64_t starts, int64_t count, int64_t items, int64_t limit) {
    if (starts != count + 1 || lists.starts[0] != 0 || lists.starts[count] != items) return false;
    for (int64_t i = 0; i < count; i++)
        if (lists.starts[i] > lists.starts[i + 1]) return false;
    return limit < 0 || all_below(lists.items, items, limit);
}

// Reads columns in the order of `Tables` in popc/schedule/flat.py; false if they do not fit.
static bool read_columns(Shift *shift, int64_t *columns[], const int64_t counts[]) {
    shift->nodes = counts[12], shift->buffers = counts[10];
    const int64_t nodes = shift->nodes, buffers = shift->buffers;
    shift->later = (Lists){columns[0], columns[1]};
    shift->reads = (Lists){columns[2], columns[3]};
    shift->takes = (Lists){columns[4], columns[5]};
    shift->choices = (Lists){columns[6], columns[7]};
    shift->ties = (Lists){columns[8], columns[9]};
    shift->frees = columns[10], shift->stays = columns[11], shift->made = columns[12];
    shift->ranks = columns[13], shift->rise = columns[14], shift->counted = columns[15];
    return are_lists(shift->later, counts[0], nodes, counts[1], nodes) &&
           are_lists(shift->reads, counts[2], nodes, counts[3], buffers) &&
           are_lists(shift->takes, counts[4], nodes, counts[5], -1) &&
           are_lists(shift->choices, counts[6], counts[5], counts[7], buffers) &&
           are_lists(shift->ties, counts[8], nodes, counts[9], nodes) && counts[11] == buffers &&
           counts[13] == nodes && counts[14] == nodes && counts[15] == nodes;
}

static int ask(void *caller) {
    if (PyErr_CheckSignals()) return -1;
    PyObject *answer = PyObject_CallNoArgs(caller);
    const int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

static bool refuse(void) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the tables do not fit together");
    return false;
}

// Reads a problem and an order of its nodes.
static bool read_order(Held *held, Shift *shift, PyObject *tables[2], int flags) {
    int64_t *columns[COLUMNS], counts[COLUMNS], placed;
    if (!read_table(held, tables[0], COLUMNS, columns, counts)) return false;
    shift->order = numbers_of(held, tables[1], flags, &placed);
    const bool fits = shift->order && read_columns(shift, columns, counts) &&
                      placed == shift->nodes && all_below(shift->order, placed, placed);
    return fits || refuse();
}

static bool read_tables(Held *held, Shift *shift, PyObject *tables[3]) {
    int64_t listed;
    if (!read_order(held, shift, tables, PyBUF_WRITABLE)) return false;
    shift->shuffled = numbers_of(held, tables[2], PyBUF_SIMPLE, &listed);
    const bool fits = shift->shuffled && listed == shift->nodes &&
                      all_below(shift->shuffled, listed, listed);
    return fits || refuse();
}

// Lets go of the arrays; false after an exception.
static bool conclude(Held *held, Outcome outcome) {
    release(held);
    if (outcome == NO_MEMORY) PyErr_NoMemory();
    if (outcome == HAS_CYCLE) PyErr_SetString(PyExc_IndexError, "nodes wait for each other");
    if (outcome == UNFIT) refuse();
    return outcome == DONE;
}

static PyObject *run(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tables[3];
    Shift shift = {.is_over = ask};
    long long live, moves, window, work;
    if (!PyArg_ParseTuple(
            args, "O!OOLLpLLO", &PyTuple_Type, &tables[0], &tables[1], &tables[2], &live, &moves,
            &shift.keeps_peak, &window, &work, &shift.caller))
        return NULL;
    shift.first_live = live, shift.most_moves = moves;
    shift.window = window, shift.most_work = work;
    Held held = {.count = 0};
    Outcome outcome = INTERRUPTED;
    if (read_tables(&held, &shift, tables)) outcome = shift_blocks(&shift);
    if (!conclude(&held, outcome)) return NULL;
    return Py_BuildValue("LL", (long long)shift.moves, (long long)shift.work);
}

static PyObject *measure(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tables[2], *result;
    Shift shift = {.is_over = NULL};
    long long live;
    if (!PyArg_ParseTuple(args, "O!OOL", &PyTuple_Type, &tables[0], &tables[1], &result, &live))
        return NULL;
    shift.first_live = live;
    Held held = {.count = 0};
    Outcome outcome = INTERRUPTED;
    if (read_order(&held, &shift, tables, PyBUF_SIMPLE)) {
        int64_t count;
        int64_t *steps = numbers_of(&held, result, PyBUF_WRITABLE, &count);
        outcome = steps && count == shift.nodes ? measure_steps(&shift, steps) : UNFIT;
    }
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *order(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tables[2], *levels;
    int is_greedy;
    Shift shift = {.is_over = NULL};
    if (!PyArg_ParseTuple(
            args, "O!OOp", &PyTuple_Type, &tables[0], &tables[1], &levels, &is_greedy))
        return NULL;
    Held held = {.count = 0};
    Outcome outcome = INTERRUPTED;
    if (read_order(&held, &shift, tables, PyBUF_WRITABLE)) {
        int64_t count;
        const int64_t *numbers = numbers_of(&held, levels, PyBUF_SIMPLE, &count);
        outcome = numbers && count == shift.nodes ? order_nodes(&shift, numbers, is_greedy) : UNFIT;
    }
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *find_lowest(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tables[2];
    Shift shift = {.is_over = ask};
    long long live, peak, bound, work;
    if (!PyArg_ParseTuple(
            args, "O!OLLLLO", &PyTuple_Type, &tables[0], &tables[1], &live, &peak, &bound, &work,
            &shift.caller))
        return NULL;
    shift.first_live = live, shift.most_work = work;
    Exact exact = {.problem = &shift, .peak = peak, .bound = bound};
    Held held = {.count = 0};
    Outcome outcome = INTERRUPTED;
    if (read_order(&held, &shift, tables, PyBUF_WRITABLE)) outcome = search_exactly(&exact);
    if (!conclude(&held, outcome)) return NULL;
    return Py_BuildValue(
        "LLL", (long long)exact.placed, (long long)exact.lower, (long long)shift.work);
}

enum { BOUND_COLUMNS = 12 };

// Reads columns in the order of `_bound_columns` in popc/schedule/bound.py.
static bool read_bound(Held *held, Bound *bound, PyObject *table) {
    int64_t *columns[BOUND_COLUMNS], counts[BOUND_COLUMNS];
    if (!read_table(held, table, BOUND_COLUMNS, columns, counts)) return false;
    const int64_t nodes = counts[8], buffers = counts[9], leaders = counts[11];
    bound->nodes = nodes, bound->buffers = buffers, bound->leaders = leaders;
    bound->later = (Lists){columns[0], columns[1]};
    bound->makes = (Lists){columns[2], columns[3]};
    bound->reads = (Lists){columns[4], columns[5]};
    bound->parts = (Lists){columns[6], columns[7]};
    bound->order = columns[8], bound->weights = columns[9];
    bound->initial = columns[10], bound->stays = columns[11];
    const bool fits = are_lists(bound->later, counts[0], nodes, counts[1], nodes) &&
                      are_lists(bound->makes, counts[2], nodes, counts[3], buffers) &&
                      are_lists(bound->reads, counts[4], nodes, counts[5], leaders) &&
                      are_lists(bound->parts, counts[6], leaders, counts[7], buffers) &&
                      all_below(bound->order, nodes, nodes) && counts[10] == buffers;
    return fits || refuse();
}

static PyObject *find_certain(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *table, *result;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &table, &result)) return NULL;
    Held held = {.count = 0};
    Bound bound;
    Outcome outcome = INTERRUPTED;
    if (read_bound(&held, &bound, table)) {
        int64_t count;
        int64_t *live = numbers_of(&held, result, PyBUF_WRITABLE, &count);
        outcome = live && count == bound.nodes ? add_certain_bytes(&bound, live) : UNFIT;
    }
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"add_certain_bytes", find_certain, METH_VARARGS, "What popc.schedule.bound defines."},
    {"search_exactly", find_lowest, METH_VARARGS, "What popc.schedule.exact defines."},
    {"order_nodes", order, METH_VARARGS, "What popc.schedule.algorithms.kahn defines."},
    {"measure_steps", measure, METH_VARARGS, "What popc.schedule.measures defines."},
    {"shift_blocks", run, METH_VARARGS, "What popc.schedule.shift defines."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "popc.schedule._native",
    .m_doc = "The search of schedules in C.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
