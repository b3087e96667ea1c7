// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "base/clock.hpp"
#include "farandole/types.hpp"
#include "transport/transfer.hpp"

namespace farandole::sim {

/// A packet between two ranks.
struct Parcel {
  static constexpr std::size_t kRoom = 4096;
  enum class Kind : std::uint8_t {
    kWhole,    // a message with its bytes
    kOffer,    // a message whose bytes follow once it is accepted
    kAccept,   // to the sender: send the bytes
    kDiscard,  // to the sender: the bytes are not wanted
    kPiece,    // bytes [offset, offset + length) of a message
    kCredit,   // to the sender: one piece was taken
  };
  Kind kind = Kind::kWhole;
  Rank from, to;
  std::uint64_t message = 0;  // its number among the messages of the rank that sends the bytes
  Tag tag;
  Signature signature;
  Bytes bytes;  // of the whole message
  Bytes offset, length;
  Bytes taken;  // of a piece, by the receiver so far
  // For the network.
  Clock::time_point due{};
  std::uint64_t order = 0;
  Parcel* next = nullptr;
  std::array<std::byte, kRoom> data;

  Parcel() {}  // does not set `data`
};

/// The network of a simulation: every delay, and so all overtaking, comes from one seed.
///
/// Time      A parcel arrives when Clock reaches its time. Equal seeds and equal calls give equal
///           delays.
/// Order     Parcels of one tag between two ranks arrive in the order sent; others may overtake
///           each other if `overtakes`.
/// Limits    Holds any number of parcels.
/// Threads   any. In a simulation all ranks run on one thread.
/// Blocking  nothing blocks. Allocates when more parcels are under way than ever before.
class Network {
 public:
  struct Options {
    std::uint64_t seed = 1;
    int rank_count = 2;
    Clock::duration delay_min{}, delay_max{};  // of most parcels
    Clock::duration late_max{};                // of one parcel in `late_every`
    std::uint32_t late_every = 0;              // 0: never
    bool overtakes = true;
    std::size_t reserve = 0;  // parcels that are allocated from the start
    /// Called when a parcel is on its way to rank `to` and arrives at `due`. Must not call the
    /// network.
    std::function<void(Rank to, Clock::time_point due)> wake;
  };
  explicit Network(Options options);

  int rank_count() const { return options_.rank_count; }

  /// An unused parcel; put() or release() takes it back.
  Parcel& obtain();
  void release(Parcel& parcel);
  /// Sends the parcel. It is dropped if it is from or to a rank that is gone.
  void put(Parcel& parcel);
  /// The next parcel that has arrived for the rank; null if there is none.
  Parcel* take(Rank to);

  /// What is sent from one rank to the other from now on arrives at `until` or later; with
  /// Clock::time_point::max() it never arrives.
  void cut(Rank from, Rank to, Clock::time_point until);
  /// The rank's process is dead: what it has sent still arrives, nothing reaches it.
  void kill(Rank rank);

  /// Parcels that were obtained and not released: under way or held by a transport.
  std::size_t in_use() const;
  /// A random number from 0 to `most`, drawn from the seed.
  std::uint64_t draw(std::uint64_t most);

 private:
  // Tags share channels, in which parcels keep their order.
  static constexpr std::size_t kChannels = 4;
  static std::size_t channel_of(const Tag& tag) {
    return (tag.operation.sequence * 5 + tag.operation.communicator * 3 + tag.lane) % kChannels;
  }
  std::size_t pair(Rank from, Rank to) const {
    return static_cast<std::size_t>(from.value() * options_.rank_count + to.value());
  }
  Clock::duration delay();
  std::uint64_t draw_locked(std::uint64_t most);
  void release_locked(Parcel& parcel);

  const Options options_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::deque<Parcel> parcels_;
  std::vector<Parcel*> free_;
  std::vector<std::vector<Parcel*>> arriving_;                      // by rank; heaps by time
  std::vector<std::array<Clock::time_point, kChannels>> last_due_;  // by pair
  std::vector<Clock::time_point> cut_until_;                        // by pair
  std::vector<bool> dead_;                                          // by rank
  std::uint64_t order_ = 0;
};

}  // namespace farandole::sim
