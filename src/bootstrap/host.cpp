// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/host.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/settings.hpp"

namespace farandole {
namespace {

std::string inode_of(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 ? std::to_string(status.st_ino) : "?";
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && *name != '\0' ? name : "unknown host";
}

std::string host_identity() {
  if (auto override = text_setting("FARANDOLE_HOST_ID"); override && !override->empty()) {
    return *override;
  }
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot + " net " + inode_of("/proc/self/ns/net") + " pid " + inode_of("/proc/self/ns/pid");
}

}  // namespace farandole
