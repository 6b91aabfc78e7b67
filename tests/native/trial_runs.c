// Reads the nanoseconds of runs, one to a line: on one thread, on all, and whether others help.
// Prints for each run 1 if it is one on a single thread, and 0 if not.
#include "trial.h"

#include <stdio.h>

int main(void) {
    Trial trial = {0};
    long long one, all;
    int helped;
    while (scanf("%lld %lld %d", &one, &all, &helped) == 3) {
        const bool alone = trial_is_alone(&trial);
        trial_note(&trial, alone ? one : all, helped && !alone);
        putchar(alone ? '1' : '0');
    }
    return 0;
}
