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

std::string MemoryCard::text() const {
  return std::to_string(pid) + ":" + std::to_string(fd) + ":" + std::to_string(bytes) + ":" +
         std::to_string(room);
}

std::optional<MemoryCard> MemoryCard::of(const Member& member) {
  const auto text = member.cards.find("shm.memory");
  MemoryCard card;
  if (text == member.cards.end() || std::sscanf(text->second.c_str(), "%d:%d:%llu:%llu", &card.pid,
                                                &card.fd, &card.bytes, &card.room) != 4) {
    return std::nullopt;
  }
  return card;
}

Bytes mapped_max(const Members& members, const std::string& host_id) {
  std::vector<MemoryCard> cards;
  std::size_t total = 0;
  for (const Member& member : members) {
    if (member.host_id != host_id) continue;
    if (const auto card = MemoryCard::of(member)) {
      cards.push_back(*card);
      total += card->bytes;
    }
  }
  std::size_t most = MemoryLimits::kNone;
  for (const MemoryCard& card : cards) {
    if (MemoryLimits::holds(card.room, total)) continue;
    most = std::min(most, MemoryLimits::share(card.room, cards.size()));
  }
  return Bytes{most};
}

Result<Mapping> Mapping::open(const Member& member, Bytes most) {
  const auto card = MemoryCard::of(member);
  if (!card) {
    return unsupported(member, "it published no card 'shm.memory' of the form pid:fd:bytes:room");
  }
  const std::string path = "/proc/" + std::to_string(card->pid) + "/fd/" + std::to_string(card->fd);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return unsupported(member, path + ": " + std::strerror(errno));
  struct stat status{};
  // Sealed, it cannot be cut off while it is mapped.
  const bool whole = ::fstat(file, &status) == 0 &&
                     static_cast<unsigned long long>(status.st_size) == card->bytes &&
                     ::fcntl(file, F_GET_SEALS) == Memory::kSizeSeals;
  const Bytes bytes{std::min<std::size_t>(card->bytes, most.value())};
  std::byte* base = whole ? Memory::map(file, bytes) : nullptr;
  const int error = errno;
  ::close(file);
  if (!whole) {
    return unsupported(member,
                       path + " is no sealed memory of " + std::to_string(card->bytes) + " bytes");
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
