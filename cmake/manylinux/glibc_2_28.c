/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked into the library, the tvm-ffi module and the program, so that objects compiled for a newer glibc run with that
 * of manylinux_2_28. Everything here is hidden: it stands between this file's neighbours and glibc, and nobody else.
 */
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>

/* Functions that glibc has in a version younger than 2.28, nearly all because 2.34 moved them into libc.so.6. Calls
 * jump on to the version that has been there all along. */
#define OLD_VERSION(name, version)                                                                                \
  __asm__(".symver lq_old_" #name ", " #name "@" version                                                          \
          "\n"                                                                                                    \
          ".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name ": jmp *lq_old_" #name \
          "@GOTPCREL(%rip)\n"                                                                                     \
          ".size " #name ", . - " #name "\n")
#define OLD(name) OLD_VERSION(name, "GLIBC_2.2.5")

OLD(__libc_start_main);

OLD(exp);
OLD(exp2);
OLD(log);
OLD(log2);
OLD(pow);

OLD(dlclose);
OLD(dlerror);
OLD_VERSION(dlmopen, "GLIBC_2.3.4");
OLD(dlopen);
OLD(dlsym);
OLD(dlvsym);

OLD(__pthread_key_create);
OLD(pthread_condattr_setpshared);
OLD(pthread_create);
OLD(pthread_detach);
OLD(pthread_getspecific);
OLD(pthread_join);
OLD(pthread_key_create);
OLD(pthread_key_delete);
OLD(pthread_kill);
OLD(pthread_mutex_trylock);
OLD(pthread_mutexattr_destroy);
OLD(pthread_mutexattr_init);
OLD(pthread_mutexattr_setpshared);
OLD(pthread_mutexattr_settype);
OLD(pthread_once);
OLD(pthread_rwlock_destroy);
OLD(pthread_rwlock_init);
OLD(pthread_rwlock_rdlock);
OLD(pthread_rwlock_timedrdlock);
OLD(pthread_rwlock_timedwrlock);
OLD(pthread_rwlock_tryrdlock);
OLD(pthread_rwlock_trywrlock);
OLD(pthread_rwlock_unlock);
OLD(pthread_rwlock_wrlock);
OLD(pthread_rwlockattr_destroy);
OLD(pthread_rwlockattr_init);
OLD(pthread_rwlockattr_setpshared);
OLD(pthread_setspecific);
OLD(pthread_sigmask);
OLD(pthread_spin_destroy);
OLD(pthread_spin_init);
OLD(pthread_spin_lock);
OLD(pthread_spin_trylock);
OLD(pthread_spin_unlock);

OLD(sem_destroy);
OLD(sem_init);
OLD(sem_post);
OLD(sem_timedwait);
OLD(sem_trywait);
OLD(sem_wait);

OLD(shm_open);
OLD(shm_unlink);

/* Before 2.33 these were inline calls of versioned functions, which are still there. */
enum { kStatVersion = 1 };
int __xstat(int version, const char* path, struct stat* status);
int __lxstat(int version, const char* path, struct stat* status);
int __fxstat(int version, int file, struct stat* status);
int fstat64(int file, struct stat* status); /* on x86-64 the two structures are one */

int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }
int lstat(const char* path, struct stat* status) { return __lxstat(kStatVersion, path, status); }
int fstat(int file, struct stat* status) { return __fxstat(kStatVersion, file, status); }
int fstat64(int file, struct stat* status) { return fstat(file, status); }

/* Since 2.32: whether reference counts may go without atomic operations. */
char __libc_single_threaded = 0;

/* Since 2.36: what std::random_device asks first. */
uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
  }
  return value;
}
