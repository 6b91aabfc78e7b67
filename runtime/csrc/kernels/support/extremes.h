// The lesser and the larger of two numbers; NaN wins, as it does in numpy.
#ifndef POPC_EXTREMES_H
#define POPC_EXTREMES_H

#define LESSER(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#define LARGER(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))

#endif
