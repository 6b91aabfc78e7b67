// The Python module: tables as arrays of 64-bit integers.
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdlib.h>

#include "flow.h"
#include "exact.h"
#include "merge.h"

enum { COLUMNS = 16, BESIDE = 9 };  // of a problem; arrays that may stand beside them

typedef struct {
    Py_buffer buffers[COLUMNS + BESIDE];
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
    long long live, moves, window, idle, work;
    if (!PyArg_ParseTuple(
            args, "O!OOLLpLLLO", &PyTuple_Type, &tables[0], &tables[1], &tables[2], &live, &moves,
            &shift.keeps_peak, &window, &idle, &work, &shift.caller))
        return NULL;
    shift.first_live = live, shift.most_moves = moves;
    shift.window = window, shift.most_idle = idle, shift.most_work = work;
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

// Arrays that stand beside a problem; false after an exception.
static bool read_beside(
    Held *held, PyObject *arrays[], int count, int64_t *columns[], int64_t counts[]) {
    for (int i = 0; i < count; i++) {
        columns[i] = numbers_of(held, arrays[i], PyBUF_SIMPLE, &counts[i]);
        if (!columns[i]) return false;
    }
    return true;
}

enum { BOUND_COLUMNS = 6 };

// Reads arrays in the order in which `certain_bytes` in popc/schedule/bound.py gives them.
static bool read_bound(Held *held, Bound *bound, PyObject *arrays[]) {
    int64_t *columns[BOUND_COLUMNS], counts[BOUND_COLUMNS];
    if (!read_beside(held, arrays, BOUND_COLUMNS, columns, counts)) return false;
    const int64_t nodes = bound->problem->nodes, buffers = bound->problem->buffers;
    bound->makes = (Lists){columns[0], columns[1]};
    bound->weights = columns[2], bound->freed_with = columns[3];
    bound->chosen = columns[4], bound->count = counts[4];
    bound->initial = columns[5], bound->initial_count = counts[5];
    const bool fits = are_lists(bound->makes, counts[0], nodes, counts[1], buffers) &&
                      counts[2] == buffers && counts[3] == buffers &&
                      all_below(columns[3], buffers, buffers) &&
                      all_below(columns[4], counts[4], buffers) &&
                      all_below(columns[5], counts[5], buffers);
    return fits || refuse();
}

// Reads a problem and what bounds need of it, and an array for the result.
static int64_t *read_bounded(
    Held *held, Bound *bound, Shift *problem, PyObject *objects[], int64_t *count) {
    bound->problem = problem;
    if (!read_order(held, problem, objects, PyBUF_SIMPLE)) return NULL;
    if (!read_bound(held, bound, objects + 2)) return NULL;
    return numbers_of(held, objects[BOUND_COLUMNS + 2], PyBUF_WRITABLE, count);
}

static PyObject *find_certain(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o[BOUND_COLUMNS + 3];
    if (!PyArg_ParseTuple(
            args, "O!OOOOOOOO", &PyTuple_Type, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6],
            &o[7], &o[8]))
        return NULL;
    Held held = {.count = 0};
    Shift problem = {.is_over = NULL};
    Bound bound;
    int64_t count, *live = read_bounded(&held, &bound, &problem, o, &count);
    Outcome outcome = INTERRUPTED;
    if (live) outcome = count == problem.nodes ? add_certain_bytes(&bound, live) : UNFIT;
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *find_least(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o[BOUND_COLUMNS + 3], *chosen;
    if (!PyArg_ParseTuple(
            args, "O!OOOOOOOOO", &PyTuple_Type, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6],
            &o[7], &chosen, &o[8]))
        return NULL;
    Held held = {.count = 0};
    Shift problem = {.is_over = NULL};
    Bound bound;
    int64_t count, asked, *bytes = read_bounded(&held, &bound, &problem, o, &count);
    Outcome outcome = INTERRUPTED;
    if (bytes) {
        const int64_t *nodes = numbers_of(&held, chosen, PyBUF_SIMPLE, &asked);
        const bool fits = nodes && asked == count && all_below(nodes, asked, problem.nodes);
        outcome = fits ? find_least_bytes(&bound, nodes, count, bytes) : UNFIT;
    }
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *reduce(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *arrays[5];
    if (!PyArg_ParseTuple(
            args, "OOOOO", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4]))
        return NULL;
    Held held = {.count = 0};
    int64_t *columns[5], counts[5];
    for (int i = 0; i < 5; i++) {
        const int flags = i < 3 ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        columns[i] = numbers_of(&held, arrays[i], flags, &counts[i]);
        if (!columns[i]) return conclude(&held, INTERRUPTED) ? Py_NewRef(Py_None) : NULL;
    }
    const Lists later = {columns[0], columns[1]};
    const int64_t nodes = counts[2];
    const bool fits = are_lists(later, counts[0], nodes, counts[1], nodes) &&
                      all_below(columns[2], nodes, nodes) && counts[3] == nodes + 1 &&
                      counts[4] == counts[1];
    const Outcome outcome = fits ? reduce_links(later, nodes, columns[2], columns[3], columns[4])
                                 : UNFIT;
    return conclude(&held, outcome) ? Py_NewRef(Py_None) : NULL;
}

// The columns of a result, as bytes of 64-bit integers; NULL after an exception.
static PyObject *write_merged(const Merge *merge) {
    PyObject *result = PyTuple_New(MERGED_COLUMNS);
    for (int i = 0; result && i < MERGED_COLUMNS; i++) {
        const Numbers numbers = merge->columns[i];
        const Py_ssize_t size = (Py_ssize_t)(numbers.count * (int64_t)sizeof(int64_t));
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)numbers.items, size);
        if (!bytes || PyTuple_SetItem(result, i, bytes)) Py_CLEAR(result);
    }
    return result;
}

// Reads the arrays that stand beside a problem; false if they do not fit.
static bool read_merge(Held *held, Merge *merge, PyObject *arrays[5]) {
    int64_t *columns[5], counts[5];
    if (!read_beside(held, arrays, 5, columns, counts)) return false;
    const int64_t nodes = merge->problem->nodes, buffers = merge->problem->buffers;
    merge->later = (Lists){columns[0], columns[1]};
    merge->makes = (Lists){columns[2], columns[3]};
    merge->weights = columns[4];
    const bool fits = are_lists(merge->later, counts[0], nodes, counts[1], nodes) &&
                      are_lists(merge->makes, counts[2], nodes, counts[3], buffers) &&
                      counts[4] == buffers;
    return fits || refuse();
}

static PyObject *merge(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tables[2], *arrays[5], *result = NULL;
    if (!PyArg_ParseTuple(
            args, "O!OOOOOO", &PyTuple_Type, &tables[0], &tables[1], &arrays[0], &arrays[1],
            &arrays[2], &arrays[3], &arrays[4]))
        return NULL;
    Held held = {.count = 0};
    Shift problem = {.is_over = NULL};
    Merge merged = {.problem = &problem};
    Outcome outcome = INTERRUPTED;
    if (read_order(&held, &problem, tables, PyBUF_SIMPLE) && read_merge(&held, &merged, arrays))
        outcome = merge_nodes(&merged);
    if (conclude(&held, outcome)) result = write_merged(&merged);
    for (int i = 0; i < MERGED_COLUMNS; i++) free(merged.columns[i].items);
    return result;
}

static PyMethodDef methods[] = {
    {"add_certain_bytes", find_certain, METH_VARARGS, "What popc.schedule.bound defines."},
    {"search_exactly", find_lowest, METH_VARARGS, "What popc.schedule.exact defines."},
    {"find_least_bytes", find_least, METH_VARARGS, "What popc.schedule.flow defines."},
    {"merge_nodes", merge, METH_VARARGS, "What popc.schedule.simplify defines."},
    {"order_nodes", order, METH_VARARGS, "What popc.schedule.algorithms.kahn defines."},
    {"measure_steps", measure, METH_VARARGS, "What popc.schedule.measures defines."},
    {"reduce_links", reduce, METH_VARARGS, "What popc.schedule.reach defines."},
    {"move_blocks", run, METH_VARARGS, "What popc.schedule.shift defines."},
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
