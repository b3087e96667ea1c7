// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/memory.hpp"
#include "transport/transfer.hpp"

// What ranks of one host read and write in each other's Memory.
//
//   header    the first page: token, doorbell word, where the rest is
//   rings     one per peer: slots of messages from the owner to that peer, in order
//   entries   one per large message of the owner that its receiver has not finished
//   pipes     blocks through which the owner stages sources that peers cannot read
//
// A small message travels in its slot. A larger one is announced: the slot names an entry, and
// either the offset of the source in the owner's Memory, which the receiver reads in place, or
// nothing, and then the owner copies it block by block through a pipe: at once while most pipes
// are free, else when the receiver accepts. Instead of reading a source in place the receiver may
// have the owner write the target, if that lies in the receiver's Memory.
//
// A field is written by one side only, and fields of different writers share no cache line.
// Whatever is read from a peer's memory is checked before it is used as an index.
namespace farandole::shm {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kSlotBytes = 4096;
inline constexpr std::size_t kEntryCount = 1024;
inline constexpr std::size_t kPipeCount = 16;

/// Bytes of a pipe. Those to all peers together hold as much as a core's second-level cache: a
/// block that has left the receiver's by the time it is written again is written twice as fast.
constexpr std::size_t pipe_bytes(std::size_t ranks_on_host) {
  const std::size_t cache = std::size_t{1} << 20,
                    peers = std::max<std::size_t>(ranks_on_host, 2) - 1;
  return std::max(std::bit_floor(cache / peers), std::size_t{256} << 10);
}

/// What is read or put in place at a time.
inline constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

/// How a message is cut on its way through a pipe: so that the receiver works on one block while
/// the sender fills the next.
constexpr std::size_t block_bytes(std::size_t message_bytes) {
  return std::bit_floor(
      std::clamp(message_bytes / 4, std::size_t{16} << 10, std::size_t{64} << 10));
}
static_assert(block_bytes(0) % Receive::kPieceAlignment == 0);

/// Where in a pipe of so many bytes a block lies.
constexpr std::size_t block_offset(std::uint64_t index, std::size_t block, std::size_t pipe) {
  return index % (pipe / block) * block;
}

/// Slots per ring: fewer when many ranks share the host, so that rings stay a small part of it.
constexpr std::size_t slot_count(std::size_t ranks_on_host) {
  return std::bit_floor(
      std::clamp<std::size_t>(1024 / std::max<std::size_t>(ranks_on_host, 1), 8, 64));
}

struct Header {
  std::atomic<std::uint64_t> token;    // random; tells a peer that it mapped the right memory
  std::atomic<std::uint64_t> rings;    // offset of Ring[ranks_on_host]; 0 until there
  std::atomic<std::uint64_t> entries;  // offset of Entry[kEntryCount]
  alignas(kLine) std::atomic<std::uint32_t> armed;  // the owner's Doorbell
};
static_assert(sizeof(Header) <= Memory::kHeaderBytes);

struct Ring {
  alignas(kLine) std::atomic<std::uint64_t> slots;     // owner: offset of Slot[]; 0 until there
  alignas(kLine) std::atomic<std::uint64_t> consumed;  // peer: slots that may be written again
};

enum class Kind : std::uint32_t { kEager, kAnnouncement };

/// The first 16 bytes of payload share the cache line of the header.
struct alignas(kLine) Slot {
  std::atomic<std::uint32_t> sequence;  // position in the stream + 1, once the rest is valid
  Kind kind;
  Tag tag;
  std::uint32_t unused;
  std::uint64_t bytes;
  Signature signature;
  static constexpr std::size_t kPayloadBytes = kSlotBytes - 48;
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(Slot) == kSlotBytes);

/// The payload of Kind::kAnnouncement.
struct Announcement {
  static constexpr std::uint64_t kStaged = ~std::uint64_t{0};
  std::uint64_t source;  // offset in the sender's Memory, or kStaged
  std::uint64_t entry;   // index
};

enum class Reply : std::uint32_t {
  kNone,
  kAccepted,   // a receive is there: stage the blocks
  kPut,        // write the message to `target`
  kWithdrawn,  // stop writing there, and say so
  kFinished,   // delivered or discarded; the receiver will not look at the entry again
};

struct Entry {
  // The sender's.
  alignas(kLine) std::atomic<std::uint32_t> cancelled;
  std::atomic<std::uint64_t> pipe;      // offset; 0 until there
  std::atomic<std::uint64_t> first;     // index of its first block there, valid with `pipe`
  std::atomic<std::uint64_t> produced;  // blocks staged; of a put 1 once nothing more is written
  // The receiver's.
  alignas(kLine) std::atomic<Reply> reply;
  std::atomic<std::uint64_t> consumed;  // blocks that may be written again
  std::atomic<std::uint64_t> target;    // offset in the receiver's Memory, valid with kPut
};
static_assert(sizeof(Entry) == 2 * kLine);

/// Stores that a sleeping peer must not miss; see Doorbell.
template <class T>
void publish(std::atomic<T>& field, T value) {
  field.store(value, std::memory_order_seq_cst);
}
template <class T>
T observe(const std::atomic<T>& field) {
  return field.load(std::memory_order_seq_cst);
}

}  // namespace farandole::shm
