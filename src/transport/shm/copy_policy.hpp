// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "farandole/result.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/shared_copy.hpp"

namespace farandole::shm {

/// Sizes of the data caches of this host's cores. The defaults are those of the processor on which
/// the thresholds below were measured.
struct Caches {
  std::size_t own_bytes = std::size_t{1} << 20;      // second level, of one core
  std::size_t shared_bytes = std::size_t{32} << 20;  // last level, of several cores

  /// The sizes that the system reports, limited to between half and twice the defaults: a virtual
  /// machine may show a cache that it has only a part of. Reads a few small files, once.
  static const Caches& of_this_host();
};

/// Switches for the ways that messages can take and for the ways to copy their bytes. A message
/// whose way is switched off takes the next one that suits it; blocks of a pipe are always there.
/// All ranks of a job use the same switches.
struct CopyPaths {
  bool slots = true;         // short messages lie in the slot that announces them
  bool long_slots = true;    // between two ranks messages up to kInSlotMax as well
  bool in_place = true;      // a receiver reads registered memory where it lies
  bool joined_pipes = true;  // sends of one source share a pipe
  bool long_pipe = true;     // long messages have a pipe of their own
  bool puts = true;          // a sender writes a target that it has read before
  bool shares = true;        // both ends move a message if only one rank sends
  bool kernel = true;        // the kernel copies between two ranks' ordinary memory
  bool past_caches = true;   // copies to memory that is in no cache go past the caches
  bool asks_ahead = true;    // copies to buffers beyond the core's own cache prefetch
  bool timed = true;  // copies to lines that a peer has read are timed, and go the faster way

  /// All switches on, except those that `without` names, separated by commas.
  ///
  /// Errors    kInvalidArgument naming the word and what is allowed.
  static Result<CopyPaths> all_but(std::string_view without);
  /// Names of the switches, in the order above, separated by ", ".
  static std::string names();
};

/// Which way a message to or from one peer takes, and how its bytes are copied: every threshold and
/// switch of the transport. Sizes that both ends must agree on are in layout.hpp.
///
/// Threads   a value; any thread may read it.
class CopyPolicy {
 public:
  static constexpr std::size_t kNever = ~std::size_t{0};

  CopyPolicy() = default;
  /// For a peer on a host with `ranks_on_host` ranks.
  static CopyPolicy of(const Caches& caches, std::size_t ranks_on_host,
                       const CopyPaths& paths = {});

  const CopyPaths& paths() const { return paths_; }

  // ---- which way

  /// Up to this many bytes a slot holds the payload, even if the peer could read it in place.
  std::size_t slot_always_max() const { return slot_always_max_; }
  /// Up to this many bytes a slot holds the payload unless the peer can read it in place.
  std::size_t slot_max() const { return slot_max_; }
  /// From this many bytes on the kernel copies ordinary memory; kNever if it copies nothing.
  std::size_t kernel_min(bool one_sends) const {
    return one_sends ? kernel_one_sends_min_ : kernel_min_;
  }
  /// From this many bytes on both ends move a message if only one rank sends.
  std::size_t share_min() const { return share_min_; }
  /// From this many bytes on a message takes the long pipe.
  std::size_t long_pipe_min(bool one_sends) const {
    return one_sends ? long_pipe_one_sends_min_ : long_pipe_min_;
  }
  /// Whether the sender is to write a target that it has read before. A long target has left the
  /// sender's caches by then, unless the message is still being made (`filling`).
  bool puts(std::size_t bytes, bool filling) const {
    return paths_.puts && (bytes <= kPutBytesMax || filling);
  }

  // ---- how bytes are copied; `of_all`: bytes of one operation's buffers on all ranks of the host

  using Copy = void (*)(void* target, const void* source, std::size_t bytes);
  /// Whether the buffers stay in the caches.
  bool cached(std::size_t of_all) const { return of_all < cached_max_; }
  /// How to copy to a target that is in no cache.
  Copy to_memory() const { return to_memory_; }
  /// How to copy to a target that its owner has used last.
  Copy to_own(std::size_t of_all) const {
    return of_all >= ask_ahead_min_ ? &copy_asking_ahead : &copy_bytes;
  }
  /// Copies to a target that the peer has read last. `times` belongs to the target.
  void to_shared(SharedCopy& times, std::byte* target, const std::byte* source,
                 std::size_t bytes) const {
    if (paths_.timed) {
      times.copy(target, source, bytes);
    } else {
      copy_bytes(target, source, bytes);
    }
  }
  /// Where a put finds the lines of its target, which the sender may have read as input of a sum.
  TargetLines put_lines(std::size_t of_all, bool sender_has_read) const {
    if (of_all >= (sender_has_read ? put_cached_max_ : cached_max_)) return TargetLines::kNobodys;
    return sender_has_read ? TargetLines::kSenders : TargetLines::kReceivers;
  }
  /// Copies to a target in the peer's memory. `times` belongs to the peer, which has written
  /// `lines`: whatever is there, all bytes are copied.
  void to_target(TargetLines lines, SharedCopy& times, std::byte* target, const std::byte* source,
                 std::size_t bytes) const {
    if (lines == TargetLines::kNobodys) return to_memory_(target, source, bytes);
    if (lines == TargetLines::kReceivers) return to_shared(times, target, source, bytes);
    copy_bytes(target, source, bytes);
  }

 private:
  static constexpr std::size_t kPutBytesMax = std::size_t{1} << 20;

  CopyPaths paths_;
  std::size_t slot_always_max_ = 0, slot_max_ = 0;
  std::size_t kernel_min_ = kNever, kernel_one_sends_min_ = kNever;
  std::size_t share_min_ = kNever;
  std::size_t long_pipe_min_ = kNever, long_pipe_one_sends_min_ = kNever;
  std::size_t cached_max_ = 0, put_cached_max_ = 0, ask_ahead_min_ = kNever;
  Copy to_memory_ = &copy_bytes;
};

}  // namespace farandole::shm
