#include "trial.h"

// Threads are still awake in the later runs of a turn.  Where a trial says what the last one said, the
// rest is twice as long: what has disturbed one is soon forgotten, and trials take little time.
enum { TURN = 4, TRIAL_RUNS = 4 * TURN, FIRST_REST = 64, LONGEST_REST = 1 << 12 };
enum { TINY = 20 * 1000 };  // nanoseconds: never gains from threads
enum { SHORT = 1000 * 1000, COLD = 10 };  // nanoseconds, and times as many

static bool is_turn_of_one(const Trial *trial) { return trial->runs / TURN % 2; }

bool trial_is_alone(const Trial *trial) {
    return trial->runs < TRIAL_RUNS ? is_turn_of_one(trial) : trial->alone;
}

// Others want processors too: all threads must save a tenth of the time.  Where none has helped, because
// other programs had its processor, the trial tells nothing, and the next one is soon.
static void decide(Trial *trial) {
    const bool known = trial->best[1] > 0;
    const bool alone = !known || trial->best[0] / 10 * 9 < trial->best[1];
    const bool changes = alone != trial->alone;
    trial->alone = alone;
    if (changes || !known || !trial->rest)
        trial->rest = FIRST_REST;
    else if (trial->rest < LONGEST_REST)
        trial->rest *= 2;
}

static void rest(Trial *trial) {
    const bool forever = trial->alone && trial->best[0] < TINY;
    if (forever || ++trial->runs < TRIAL_RUNS + trial->rest) return;
    trial->runs = 0;
    trial->best[0] = trial->best[1] = 0;
}

void trial_note(Trial *trial, int64_t nanoseconds, bool helped) {
    if (trial->runs >= TRIAL_RUNS) {
        rest(trial);
        return;
    }
    const bool one = is_turn_of_one(trial);
    int64_t *best = &trial->best[!one];
    if ((one || helped) && (!*best || nanoseconds < *best)) *best = nanoseconds;
    trial->runs++;
    // The first run finds nothing in the caches, and is no measure of a short program.
    const int64_t limit = trial->runs == 1 ? COLD * (int64_t)SHORT : SHORT;
    if (trial->runs <= 2 && nanoseconds > limit) {
        trial->runs = TRIAL_RUNS;
        trial->best[0] = INT64_MAX;  // long: on all threads
        trial->best[1] = nanoseconds;
    }
    if (trial->runs == TRIAL_RUNS) decide(trial);
}
