// Messages between neighbouring cards of a pipeline: rows of 16-byte units, and behind them others, as of the maps' statistics. Header:
// exchange.cuh, before this one.
//
// offer_rows.cu tells a copy engine that the rows are there, which takes them from where they lie to the inbox in the other card's memory
// (cuda/outgoing.rs), and receive_rows.cu takes them out there. So no multiprocessor is busy with what is sent.
//
// A message has a number, which counts up alike on both cards. Flow 0 is that of values, which go to the next card; flow 1 that of
// gradients, which go back. A card's part of the table begins with words, unsigned, one for each flow:

#define ARRIVED 0   // the number of the message in the inbox; written by the other card's copy engine
#define TAKEN 2     // the number of the last message that the other card has taken out; written by its kernel
#define READY 4     // the number of the last message whose rows are there; its copy engine waits for it
#define COPIED 6    // the number of the last message that has left; written by its copy engine
#define UNPACKED 8  // blocks of receive_rows.cu that have come to their end

// Waits until a word has come to `number`. For one thread.
__device__ __forceinline__ void await_word(const volatile unsigned* word, unsigned number, const unsigned long long* table) {
    patience p(table);
    while ((int)(*word - number) < 0 && p.lasts()) {
    }
    __threadfence_system();
}
