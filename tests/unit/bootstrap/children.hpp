// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farandole::test {

/// The wait status of a forked process that runs `child` and ends with what it returns, or is
/// killed after 60 s; -1 where there was none. It ends by the system's own call: at _exit()
/// ThreadSanitizer would count threads of ours, which are not there, as leaked.
template <class Child>
int status_of_child(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    for (;;) syscall(SYS_exit_group, child());
  }
  int status = -1;
  return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

}  // namespace farandole::test
