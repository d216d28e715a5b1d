/* Preloaded by slow-sync.sh: makes every sync of a file take ANABRANCH_SYNC_US microseconds longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char *name, int file) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *longer = getenv("ANABRANCH_SYNC_US");
    long us = longer ? atol(longer) : 0;
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, 0);
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
