// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "transport/memory.hpp"

namespace farandole::shm {
namespace {

Error unsupported(const Member& member, const std::string& reason) {
  return Error{ErrorKind::kUnsupported, "Cannot map the memory of rank " +
                                            std::to_string(member.rank.value()) + " (pid " +
                                            std::to_string(member.pid) + "): " + reason + "."};
}

}  // namespace

Result<Mapping> Mapping::open(const Member& member) {
  const auto card = member.cards.find("shm.memory");
  int pid = 0, fd = -1;
  unsigned long long bytes = 0;
  if (card == member.cards.end() ||
      std::sscanf(card->second.c_str(), "%d:%d:%llu", &pid, &fd, &bytes) != 3) {
    return unsupported(member, "it published no card 'shm.memory' of the form pid:fd:bytes");
  }
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return unsupported(member, path + ": " + std::strerror(errno));
  struct stat status{};
  // Sealed, it cannot be cut off while it is mapped.
  const bool whole = ::fstat(file, &status) == 0 &&
                     static_cast<unsigned long long>(status.st_size) == bytes &&
                     ::fcntl(file, F_GET_SEALS) == Memory::kSizeSeals;
  std::byte* base = whole ? Memory::map(file, Bytes{bytes}) : nullptr;
  const int error = errno;
  ::close(file);
  if (!whole) {
    return unsupported(member,
                       path + " is no sealed memory of " + std::to_string(bytes) + " bytes");
  }
  if (base == nullptr) return unsupported(member, path + ": mmap: " + std::strerror(error));
  Mapping mapping(base, Bytes{bytes});
  mapping.owned_ = true;
  return mapping;
}

Mapping::~Mapping() {
  if (owned_) ::munmap(base_, bytes_);
}

}  // namespace farandole::shm
