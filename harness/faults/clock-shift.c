/*
 * Preloaded into one server, adds an offset to the wall clock that the server reads, so that a test can make the
 * clock of that server alone jump, or makes it stand still. The offset (milliseconds, 64 bit), and behind it the time at which
 * the clock stands (microseconds since 1970, 64 bit; 0 while it runs) are read from a memory-mapped file on every call: the
 * test writes the file and the very next reading follows. Monotonic clocks are left alone, as a real jump does.
 *
 * The kernel is asked directly: looking up libc's own function allocates memory, and the allocator of the server
 * (jemalloc) reads the clock while it starts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ms, *stands_us;

__attribute__((constructor)) static void map_offset(void) {
  const char *file = getenv("RINGFENCE_CLOCK_SHIFT");
  int descriptor = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *page = mmap(NULL, 2 * sizeof *offset_ms, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (page == MAP_FAILED) return;
  stands_us = (const volatile int64_t *)page + 1;
  offset_ms = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result != 0 || !offset_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  int64_t stands = *stands_us;
  if (stands != 0) {
    now->tv_sec = stands / 1000000;
    now->tv_nsec = stands % 1000000 * 1000;
    return 0;
  }
  int64_t nanoseconds = now->tv_nsec + (*offset_ms % 1000) * 1000000;
  now->tv_sec += *offset_ms / 1000;
  if (nanoseconds < 0) now->tv_sec -= 1, nanoseconds += 1000000000;
  if (nanoseconds >= 1000000000) now->tv_sec += 1, nanoseconds -= 1000000000;
  now->tv_nsec = nanoseconds;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t *seconds) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (seconds) *seconds = precise.tv_sec;
  return precise.tv_sec;
}
