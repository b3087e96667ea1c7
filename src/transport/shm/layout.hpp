// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/asymmetric_fence.hpp"
#include "device/cpu/memory.hpp"
#include "farandole/types.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/claims.hpp"
#include "transport/transfer.hpp"

// What ranks of one host read and write in each other's Memory.
//
//   header    the first page: token, doorbell word, where the rest is
//   rings     one per peer: messages from the owner to that peer, in order, each a slot of as many
//             cache lines as it needs
//   entries   one per large message of the owner that its receiver has not finished
//   pipes     blocks through which the owner stages sources that peers cannot read
//
// A small message travels in its slot, see in_slot_max. A larger one is announced: its slot names
// an entry and, if the receiver can read the source in place, where the source is. If it cannot,
// the owner copies the source block by block through a pipe: at once while most pipes are free,
// else when the receiver accepts. Instead of reading a source in place the receiver may have the
// owner write the target. What can be read or written in place is the peer's Memory, or, where a
// copy by the kernel pays (PeerProcess), all memory of its process.
//
// Except in Claims, a field is written by one side only, and fields of different writers share no
// cache line. A value read from a peer's memory is checked before it is used as an index.
namespace farandole::shm {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kEntryCount = 1024;

/// Bytes that are read or put in place at a time.
inline constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
/// Pieces of a message that both ends move.
constexpr std::size_t piece_count(Bytes message) {
  return (message.value() + kPieceBytes - 1) / kPieceBytes;
}

/// The size of the blocks in which a message passes through a pipe. The receiver works on one block
/// while the sender fills the next, but blocks are not so small that signalling them takes longer
/// than that saves.
inline constexpr std::size_t kBlockBytesMax = std::size_t{64} << 10;
constexpr std::size_t block_bytes(std::size_t message_bytes) {
  constexpr std::size_t kPage = 4096, kWholeMax = 4 * kPage;
  const std::size_t least = std::bit_ceil(std::clamp(message_bytes, kPage, kWholeMax));
  return std::bit_floor(std::clamp(message_bytes / 4, least, kBlockBytesMax));
}
static_assert(block_bytes(0) % Receive::kPieceAlignment == 0);

/// Lines left free after a message of a ring that has kReadAheadMin bytes or more. At the end of
/// such a message the receiver's core prefetches further lines, and would take from the sender
/// those to which it writes the next message. Messages in a pipe lie apart for the same reason.
inline constexpr std::size_t kGapLines = 8;
inline constexpr std::size_t kReadAheadMin = 256;  // bytes

/// Bytes of a ring, and of a pipe. Large enough that a reused line has left both cores'
/// second-level caches, so that writing it need not wait for the reader's cache; small enough that
/// the rings and pipes of all ranks stay in the cache that the cores share. With more than two
/// ranks several pipes are in use at once, so each is smaller: an allreduce of 64 MiB by four ranks
/// on two cores takes 47.8 ms with 256 KiB and 51.3 ms with 512 KiB.
constexpr std::size_t share_bytes(std::size_t ranks_on_host) {
  if (ranks_on_host <= 2) return std::size_t{2} << 20;
  const std::size_t equal =
      std::bit_floor((std::size_t{8} << 20) / (ranks_on_host * ranks_on_host));
  return std::min(equal, std::size_t{256} << 10);
}

/// Pipes of a rank: two for each peer, since a rank that has its part of a reduce-scatter sends for
/// the next one before slow peers have read this one; and as many again, see
/// staged::Sender::offer_pipe. One more, the last, is for long messages.
constexpr std::size_t pipe_count(std::size_t ranks_on_host) {
  return 1 + std::clamp<std::size_t>(4 * (std::max<std::size_t>(ranks_on_host, 2) - 1), 16, 128);
}

/// Bytes of the pipe for long messages.
inline constexpr std::size_t kLongPipeBytes = std::size_t{4} << 20;

/// Bytes of a rank's pipe. With many ranks the first pipe is larger than the next ones: a message
/// to all peers uses only that pipe.
constexpr std::size_t pipe_bytes(std::size_t ranks_on_host, std::size_t index) {
  if (index + 1 == pipe_count(ranks_on_host)) return kLongPipeBytes;
  const std::size_t least = index == 0 ? std::size_t{256} << 10 : kBlockBytesMax;
  return std::max(share_bytes(ranks_on_host), least);
}
constexpr std::size_t all_pipes_bytes(std::size_t ranks_on_host) {
  return pipe_bytes(ranks_on_host, 0) + kLongPipeBytes +
         (pipe_count(ranks_on_host) - 2) * pipe_bytes(ranks_on_host, 1);
}

/// The block at which the next message begins, after one that begins at block `first`.
constexpr std::uint64_t block_after(std::uint64_t first, std::size_t message_bytes) {
  const std::size_t block = block_bytes(message_bytes);
  return first + (message_bytes + block - 1) / block + 1;
}

/// The byte at which a block begins in a pipe of `pipe` bytes.
constexpr std::size_t block_offset(std::uint64_t index, std::size_t block, std::size_t pipe) {
  return index % (pipe / block) * block;
}

/// A message of up to kInSlot bytes travels in its slot. So does one of up to in_slot_max() unless
/// the peer can read it in place: copying it once more takes longer than an entry, but an entry and
/// a pipe take longer than a slot. With more than two ranks a message may have several readers, for
/// which it is staged only once.
inline constexpr std::size_t kInSlot = std::size_t{4} << 10;
inline constexpr std::size_t kInSlotMax = std::size_t{16} << 10;
constexpr std::size_t in_slot_max(std::size_t ranks_on_host) {
  return ranks_on_host <= 2 ? kInSlotMax : kInSlot;
}

/// Lines of a ring: a power of two, so that finding a line takes no division. A slot that begins
/// before the end may reach kSlotLinesMax - 1 lines beyond it.
inline constexpr std::size_t kSlotLinesMax = 1 + kInSlotMax / kLine;
constexpr std::size_t line_count(std::size_t ranks_on_host) {
  return std::max(share_bytes(ranks_on_host), 8 * in_slot_max(ranks_on_host)) / kLine;
}
constexpr std::size_t with_overhang(std::size_t lines) {
  return lines + kSlotLinesMax - 1;
}

struct alignas(kLine) Line {
  std::byte bytes[kLine];
};

/// The version of this layout, which a rank publishes in its member record. It changes with every
/// change of the layout, so that processes of two versions of the library refuse each other instead
/// of misreading each other's memory.
inline constexpr std::uint32_t kLayoutVersion = 1;

struct Header {
  std::atomic<std::uint64_t> token;    // random; tells a peer that it found the right memory
  std::atomic<std::uint64_t> rings;    // offset of Ring[ranks_on_host]; 0 until there
  std::atomic<std::uint64_t> entries;  // offset of Entry[kEntryCount]
  alignas(kLine) std::atomic<std::uint32_t> armed;  // the owner's Doorbell
};
static_assert(sizeof(Header) <= Memory::kHeaderBytes);
static_assert(offsetof(Header, armed) == Doorbell::kWordOffset);

struct Ring {
  alignas(kLine) std::atomic<std::uint64_t> lines;  // owner: offset of Line[]; 0 until there
  std::atomic<bool> reaches;  // owner: it can copy from and to all memory of the peer
  alignas(kLine) std::atomic<std::uint64_t> consumed;  // peer: lines that may be written again
};

enum class Kind : std::uint32_t { kEager, kAnnouncement };

/// A message. A brief payload is in the same cache line as its description. A longer one begins at
/// a cache line, as buffers do: a copy takes up to 40 % longer if source and target are aligned
/// differently within their lines.
struct alignas(kLine) Slot {
  std::atomic<std::uint64_t> mark;  // mark_of(its line), once the rest is valid
  Kind kind;
  Tag tag;
  std::uint64_t bytes;
  Signature signature;
  std::byte brief[16];
  std::byte lines[kInSlotMax];  // only the bytes that the message needs belong to the slot

  std::byte* payload(std::size_t size) { return size <= sizeof(brief) ? brief : lines; }
  const std::byte* payload(std::size_t size) const { return size <= sizeof(brief) ? brief : lines; }
};
static_assert(sizeof(Slot) == kSlotLinesMax * kLine);

/// Line numbers continue from lap to lap. The place where the next slot will begin has whatever an
/// earlier lap left there, perhaps payload. That is taken for a mark with a probability of 1 in
/// 2^64, since the token is random. Clearing the place instead would cost one more transfer of its
/// cache line for every message.
constexpr std::uint64_t mark_of(std::uint64_t line, std::uint64_t token) {
  return (line + 1) * 0x9e3779b97f4a7c15 ^ token;
}

/// The index of a line in a ring of `lines`.
constexpr std::size_t index_in(std::uint64_t line, std::size_t lines) {
  return line & (lines - 1);
}

/// The line at which the next slot begins, after one at `line` with `payload` bytes: after a gap if
/// one is needed, or, if that is beyond the end, at the first line of the next lap.
constexpr std::uint64_t line_after(std::uint64_t line, std::size_t payload, std::size_t lines) {
  const std::size_t more = payload > sizeof(Slot::brief) ? (payload + kLine - 1) / kLine : 0;
  const std::size_t slot = 1 + more + (payload >= kReadAheadMin ? kGapLines : 0);
  const std::size_t left = lines - index_in(line, lines);
  return line + (slot < left ? slot : left);
}

/// Marks a place as an address of the owner's process; other places are offsets in its Memory.
inline constexpr std::uint64_t kPrivate = std::uint64_t{1} << 62;
constexpr bool is_private(std::uint64_t place) {
  return place >> 62 == 1;
}

/// Ranks of a host reach each other's ordinary memory if there are exactly this many. With more of
/// them a source has several readers and is staged once for all, and the host's cores copy about as
/// much either way. Four ranks on two cores, staged and by the kernel: allgather of 1 MiB 229 and
/// 274 us, broadcast 164 and 280, reducescatter 333 and 331, allreduce 503 and 511.
inline constexpr std::size_t kReachingRanks = 2;

/// The payload of Kind::kAnnouncement.
struct Announcement {
  static constexpr std::uint64_t kStaged = ~std::uint64_t{0};
  std::uint64_t source;   // offset in the sender's Memory, its address | kPrivate, or kStaged
  std::uint32_t entry;    // index
  std::uint32_t filling;  // 1: the source is not all there yet, see Entry::available
};

enum class Reply : std::uint32_t {
  kNone,
  kAccepted,   // a receive is there: stage the blocks
  kPut,        // write the message to `target`
  kShare,      // write the message's end there, piece by piece; the receiver reads its beginning
  kWithdrawn,  // stop writing to `target`, and confirm it
  kFinished,   // delivered or discarded; the receiver will not look at the entry again
};

/// In whose cache the lines of a target are that the sender is to write.
enum class TargetLines : std::uint32_t {
  kSenders,    // it has read them in this operation
  kReceivers,  // whoever uses the target does so on the receiver's core
  kNobodys,    // the buffers are larger than the caches
};

struct Entry {
  // The sender's.
  alignas(kLine) std::atomic<std::uint32_t> cancelled;
  std::atomic<std::uint64_t> pipe;       // offset; 0 until there
  std::atomic<std::uint64_t> capacity;   // of the pipe in bytes, valid with `pipe`
  std::atomic<std::uint64_t> first;      // index of the message's first block in it, likewise
  std::atomic<std::uint64_t> produced;   // staged: blocks; shared: pieces that the sender has
                                         // written; put: 1 once it writes no more
  std::atomic<std::uint64_t> available;  // bytes, of a source that is read in place
  // The receiver's.
  alignas(kLine) std::atomic<Reply> reply;
  std::atomic<std::uint64_t> consumed;  // blocks that may be written again, if not all fit
  std::atomic<std::uint64_t> target;    // valid with kPut, kShare: offset, or address | kPrivate
  std::atomic<TargetLines> lines;       // of the target, likewise
  Claims claims;                        // on the pieces of a shared message
};
static_assert(sizeof(Entry) == 2 * kLine);

/// For stores that a sleeping peer must not miss; see Doorbell.
template <class T>
void publish(std::atomic<T>& field, T value) {
  AsymmetricFence::store(field, value);
}
template <class T>
T observe(const std::atomic<T>& field) {
  return field.load(std::memory_order_seq_cst);
}

}  // namespace farandole::shm
