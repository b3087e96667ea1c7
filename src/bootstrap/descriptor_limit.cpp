// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace farandole {
namespace {

rlimit limit() {
  rlimit found{};
  getrlimit(RLIMIT_NOFILE, &found);
  return found;
}

/// How many descriptors are open; if none is left to look with, the limit.
std::size_t open_count() {
  std::error_code failure;
  const std::filesystem::directory_iterator open("/proc/self/fd", failure);
  if (failure) return static_cast<std::size_t>(limit().rlim_cur);
  return static_cast<std::size_t>(std::distance(open, {})) - 1;  // without the one that looks
}

}  // namespace

Result<void> make_room_for_descriptors(std::size_t count, const std::string& purpose) {
  const std::size_t open = open_count(), needed = open + count;
  rlimit now = limit();
  if (now.rlim_cur >= needed) return {};
  const rlim_t most = now.rlim_max;
  now.rlim_cur = std::min<rlim_t>(needed, most);
  if (setrlimit(RLIMIT_NOFILE, &now) == 0 && most >= needed) return {};
  return Error{ErrorKind::kInvalidArgument,
               "this process may open " + std::to_string(most) + " files (ulimit -n), " +
                   std::to_string(open) + " are open, and " + purpose + " needs " +
                   std::to_string(count) + " more; allowed is a limit of " +
                   std::to_string(needed) + " and above."};
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

Error descriptor_error(const std::string& purpose) {
  const rlimit now = limit();
  return Error{ErrorKind::kInvalidArgument,
               purpose + " needs one file more than this process or its host may open; the limit " +
                   "of the process is " + std::to_string(now.rlim_cur) + " (ulimit -n), " +
                   std::to_string(open_count()) + " are open."};
}

}  // namespace farandole
