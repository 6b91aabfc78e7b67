// Convolutions of bytes as products of words, for processors that have none of four bytes.
//
// Bytes less their zero points become words, once, with what windows read around the image, and windows
// are read where they lie.
#ifndef POPC_WORDS_I8_H
#define POPC_WORDS_I8_H

#include "byte_images.h"
#include "word_panels.h"

// Neighbouring groups whose channels are few are one group here, with zeros between them.  Where all
// groups have one channel, and one of the result, they stay single: the image is woven, each word
// with its neighbour in the next column, and columns of tiles have words of their own.
typedef struct {
    bool woven;
    int64_t groups, in, out;  // and their channels
    int64_t panels;  // of BYTE_COLUMNS channels, of a group
    int64_t size[AXES], axis[AXES];  // of the image, and its strides in words
    int64_t batch;  // words of an image
    int64_t neighbour;  // columns from a word to the one that it is woven with
    int64_t runs, pairs;  // of a window: words that lie side by side
    int64_t *offsets;  // of the runs, in words
    int16_t
        *weights;  // [group][panel][run][pair][BYTE_COLUMNS][2]; NULL: they are packed in every run
    int64_t image_bytes, weight_bytes, chunks;
} WordConv;

// False if memory is exhausted.  `needs` becomes what `run_words` is given.
bool ISA(plan_words)(WordConv *words, const ByteConv *conv, Needs *needs);
void ISA(release_words)(WordConv *words);

void ISA(run_words)(const WordConv *words, const ByteConv *conv, const Run *run);

#endif
