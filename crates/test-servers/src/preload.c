/* Preloaded into a server: a wall clock that is ahead by what a file says and runs at the rate that it says, and a disk
   that is slow, full or broken if the file says so. Both may be set while the server runs. The clock that never jumps is left alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As preload.rs has them. */
enum { AHEAD, RATE, SINCE, SLOW, FAILING, FULL, NUMBERS };

static long long told(int number) {
  static volatile long long *numbers;
  static int asked;
  if (!asked) {
    const char *path = getenv("TEST_PRELOAD");
    int file = path ? open(path, O_RDONLY) : -1;
    asked = 1;
    if (file >= 0) {
      void *mapped = mmap(0, NUMBERS * sizeof *numbers, PROT_READ, MAP_SHARED, file, 0);
      if (mapped != MAP_FAILED) numbers = mapped;
      close(file);
    }
  }
  return numbers ? numbers[number] : 0;
}

/* --- the clock --- */

static long long micros(void) {
  struct timespec now;
  long long right;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  right = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
  return right + told(AHEAD) + (right - told(SINCE)) * told(RATE) / 1000000;
}

int gettimeofday(struct timeval *restrict told_time, void *restrict zone) {
  long long now = micros();
  (void)zone;
  told_time->tv_sec = now / 1000000;
  told_time->tv_usec = now % 1000000;
  return 0;
}

time_t time(time_t *told_time) {
  time_t now = micros() / 1000000;
  if (told_time) *told_time = now;
  return now;
}

int clock_gettime(clockid_t which, struct timespec *told_time) {
  long long now;
  if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, which, told_time);
  now = micros();
  told_time->tv_sec = now / 1000000;
  told_time->tv_nsec = now % 1000000 * 1000;
  return 0;
}

/* --- the disk --- */

static int sync_file(long call, int file) {
  long long slow = told(SLOW);
  if (slow > 0) {
    struct timespec pause = {slow / 1000000, slow % 1000000 * 1000};
    syscall(SYS_nanosleep, &pause, 0);
  }
  if (told(FAILING)) {
    errno = EIO;
    return -1;
  }
  return syscall(call, file);
}

int fsync(int file) { return sync_file(SYS_fsync, file); }
int fdatasync(int file) { return sync_file(SYS_fdatasync, file); }

/* Whether a write fails: to files, and not to sockets, pipes and the log. */
static int is_full(int file) {
  struct stat what;
  if (file <= STDERR_FILENO || !told(FULL)) return 0;
  if (fstat(file, &what) != 0 || !S_ISREG(what.st_mode)) return 0;
  errno = ENOSPC;
  return 1;
}

ssize_t write(int file, const void *bytes, size_t length) {
  return is_full(file) ? -1 : syscall(SYS_write, file, bytes, length);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  return is_full(file) ? -1 : syscall(SYS_writev, file, parts, count);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) {
  return is_full(file) ? -1 : syscall(SYS_pwrite64, file, bytes, length, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
  return is_full(file) ? -1 : syscall(SYS_pwrite64, file, bytes, length, at);
}
