/* SPDX-License-Identifier: Apache-2.0
 *
 * Start of a program that was linked with a glibc from 2.34 on and runs with an older one. Which of them runs a
 * program's constructors changed then: the start code of the older ones, __libc_start_main of the newer ones. Here
 * neither does. The destructors are run either way. Linked with --wrap=main.
 */
typedef void (*Initializer)(int, char**, char**);

extern const Initializer __init_array_start[];
extern const Initializer __init_array_end[];
int __real_main(int argc, char** argv, char** environment);
int __wrap_main(int argc, char** argv, char** environment);

static int constructed;

__attribute__((constructor)) static void note_construction(void) { constructed = 1; }

int __wrap_main(int argc, char** argv, char** environment) {
  if (!constructed) {
    for (const Initializer* initializer = __init_array_start; initializer < __init_array_end; ++initializer) {
      (*initializer)(argc, argv, environment);
    }
  }
  return __real_main(argc, argv, environment);
}
