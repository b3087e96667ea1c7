// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "device/cpu/memory.hpp"

namespace farandole::shm {
namespace {

Error unsupported(const Member& member, const std::string& reason) {
  return Error{ErrorKind::kUnsupported, "Cannot map the memory of rank " +
                                            std::to_string(member.rank.value()) + " (pid " +
                                            std::to_string(member.pid) + "): " + reason + "."};
}

}  // namespace

std::string MemoryEntry::text() const {
  return std::to_string(pid) + ":" + std::to_string(fd) + ":" + std::to_string(bytes) + ":" +
         std::to_string(room);
}

std::optional<MemoryEntry> MemoryEntry::of(const Member& member) {
  const auto text = member.record.find("shm.memory");
  MemoryEntry entry;
  if (text == member.record.end() ||
      std::sscanf(text->second.c_str(), "%d:%d:%llu:%llu", &entry.pid, &entry.fd, &entry.bytes,
                  &entry.room) != 4) {
    return std::nullopt;
  }
  return entry;
}

Bytes mapped_max(const Members& members, const std::string& host_id) {
  std::vector<MemoryEntry> record;
  std::size_t total = 0;
  for (const Member& member : members) {
    if (member.host_id != host_id) continue;
    if (const auto entry = MemoryEntry::of(member)) {
      record.push_back(*entry);
      total += entry->bytes;
    }
  }
  std::size_t most = MemoryLimits::kNone;
  for (const MemoryEntry& entry : record) {
    if (MemoryLimits::holds(entry.room, total)) continue;
    most = std::min(most, MemoryLimits::share(entry.room, record.size()));
  }
  return Bytes{most};
}

Result<Mapping> Mapping::open(const Member& member, Bytes most) {
  const auto entry = MemoryEntry::of(member);
  if (!entry) {
    return unsupported(member, "it published no entry 'shm.memory' of the form pid:fd:bytes:room");
  }
  const std::string path =
      "/proc/" + std::to_string(entry->pid) + "/fd/" + std::to_string(entry->fd);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return unsupported(member, path + ": " + std::strerror(errno));
  struct stat status{};
  // Its seals keep the file from being truncated while it is mapped.
  const bool whole = ::fstat(file, &status) == 0 &&
                     static_cast<unsigned long long>(status.st_size) == entry->bytes &&
                     ::fcntl(file, F_GET_SEALS) == Memory::kSizeSeals;
  const Bytes bytes{std::min<std::size_t>(entry->bytes, most.value())};
  std::byte* base = whole ? Memory::map(file, bytes) : nullptr;
  const int error = errno;
  ::close(file);
  if (!whole) {
    return unsupported(member,
                       path + " is no sealed memory of " + std::to_string(entry->bytes) + " bytes");
  }
  if (base == nullptr) {
    return unsupported(member, path + ": mmap of " + std::to_string(bytes.value()) +
                                   " bytes: " + std::strerror(error) +
                                   ". FARANDOLE_MEMORY sets how much each rank reserves" +
                                   MemoryLimits::now().text());
  }
  Mapping mapping(base, bytes);
  mapping.owned_ = true;
  return mapping;
}

Mapping::~Mapping() {
  if (owned_) ::munmap(base_, bytes_);
}

}  // namespace farandole::shm
