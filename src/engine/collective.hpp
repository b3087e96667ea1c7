// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.hpp"
#include "engine/bound_program.hpp"
#include "engine/operation.hpp"
#include "farandole/types.hpp"
#include "reduce/reduce.hpp"

namespace farandole {

/// Everything that a collective needs to run by itself.
struct CollectiveSpec {
  OperationTerms terms;
  OperationId id;
  std::shared_ptr<const BoundProgram> bound;
  std::shared_ptr<Device> device;  // does the work of this rank
  ReduceKernel kernel = nullptr;   // none when nothing is reduced
  std::size_t divisor = 1;         // sums over all ranks are divided by it, for an average
  Count out_count;                 // elements of `out` that the caller is promised
  /// Makes `in` from the caller's input, before anything else, if `in` is a copy.
  std::optional<LocalWork> before;
  /// The last step of an average of integers: from `out` to where the caller wants the average.
  std::optional<LocalWork> after;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::shared_ptr<std::byte> scratch;     // library memory, scratch_slots of the program
  std::shared_ptr<std::byte> staged_in;   // keeps a library copy of the input alive, if any
  std::shared_ptr<std::byte> staged_out;  // keeps an output alive that the caller did not give
  Signature signature;
};

/// How a bound program's transfers with each rank of the group may follow each other.
FlowOf flow_of(std::shared_ptr<const Group> group);

/// One collective in flight: walks a bound program, with a transfer for each of its actions.
class CollectiveOperation final : public Operation {
 public:
  explicit CollectiveOperation(CollectiveSpec spec);

  const CollectiveSpec& spec() const { return spec_; }
  void set_id(OperationId id) override { spec_.id = id; }
  /// Makes the operation ready to run again, on these buffers. They must be in place if the last
  /// ones were. Allocates nothing unless the name is long.
  void renew(const void* in, void* out, std::string_view name, std::uint64_t submitted,
             const Gate& gate) {
    Operation::renew(name, submitted, gate);
    set_buffers(in, out);
    entered_ = 0;
    round_ = {};
    open_count_ = 0;
    phase_ = Phase::kBefore;
  }
  const OperationId* id() const override { return &spec_.id; }
  Signature signature() const override { return spec_.signature; }
  void withdraw(FinalState& words) const override;
  std::optional<Rank> lost_peer() const override;
  bool done_by(Rank world_rank, const FinalState& final_state) const override;
  std::string description() const override;
  std::string state() const override;

 private:
  /// An action and its transfer.
  struct LiveAction {
    // The same in every run.
    const BoundAction* bound = nullptr;
    Transport* transport = nullptr;
    Transfer* transfer = nullptr;       // `send` or `receive`; none if it is local
    const LiveAction* rides = nullptr;  // a copy: the send during which it is made
    const CollectiveOperation* owner = nullptr;
    // Of this run.
    enum class State : std::uint8_t { kHeld, kOpen, kWorking, kDone } state = State::kDone;
    Device::Ticket work = Device::kDone;  // kWorking
    std::byte* written = nullptr;
    const std::byte* operand_data = nullptr;
    std::byte* arrival = nullptr;  // where bytes arrive that a device reduces
    Send send;
    Receive receive;

    bool receives() const { return transfer == &receive; }
  };
  enum class Phase : std::uint8_t { kBefore, kRounds, kAfter };
  bool begin() override { return advance(); }
  bool advance() override;  // zero or more rounds
  bool cancel() override;
  std::uint64_t progress() const override;
  bool awaits_device() const override { return !spec_.device->works_at_once(); }
  std::optional<LocalWork> last_work() const;
  bool work_on(const LocalWork& work, bool& moved);
  void start(LiveAction& live, const LocalWork& work);
  bool device_is_clear();
  void make_room_for_arrivals(const BoundRound& round);
  bool next_round();  // false at the end of the program
  bool enter_round();
  bool bind_round();
  void attach(std::span<const BoundAction> actions, const BoundRound& round);
  void attach(LiveAction& live, const BoundAction& bound);
  void open_round();
  void open(LiveAction& live);
  void run_locally(LiveAction& live);
  bool poll_round();  // true if an action changed
  bool close(LiveAction& live);
  bool copy_further(LiveAction& live);
  void copy(LiveAction& live, Bytes bytes) const;  // the next `bytes` of it
  LocalWork copying(const LiveAction& live, Bytes offset, Bytes bytes) const;
  LocalWork reduction(const LiveAction& live, Bytes offset, const std::byte* incoming,
                      Bytes bytes) const;
  std::span<LiveAction> round() { return std::span(live_).subspan(round_.first, round_.count); }
  std::span<const LiveAction> round() const {
    return std::span(live_).subspan(round_.first, round_.count);
  }
  std::byte* at(const ByteSpan& place) const {
    return buffers_[static_cast<std::size_t>(place.buffer)] + place.offset;
  }
  void set_buffers(const void* in, void* out) {
    spec_.in = static_cast<const std::byte*>(in);
    spec_.out = static_cast<std::byte*>(out);
    // The schedule never writes `in`, so the cast only unifies the buffers' types.
    buffers_[static_cast<std::size_t>(Buffer::kIn)] = const_cast<std::byte*>(spec_.in);
    buffers_[static_cast<std::size_t>(Buffer::kOut)] = spec_.out;
    buffers_[static_cast<std::size_t>(Buffer::kScratch)] = spec_.scratch.get();
  }
  bool divides_at(const Action& action) const;
  static void consume(void* context, Bytes offset, const std::byte* data, Bytes bytes);
  static void copy_along(void* context, Bytes end);

  CollectiveSpec spec_;                  // without its terms, see terms()
  std::array<std::byte*, 3> buffers_{};  // by Buffer
  const bool whole_;                     // whether live_ holds a whole run or one round
  const bool to_memory_;                 // copies leave the caches
  const bool works_at_once_;             // the device
  std::vector<LiveAction> live_;
  std::size_t entered_ = 0;       // rounds
  BoundRound round_;              // the current one
  std::uint32_t open_count_ = 0;  // those of its actions that are not kDone
  Phase phase_ = Phase::kBefore;
  // For the work on whole buffers, before and after the rounds.
  Count worked_;
  Device::Ticket work_ = Device::kDone;
  /// If the device does not work at once: what it reduces arrives here, one message behind the
  /// other.
  std::vector<std::byte> arrivals_;
  // For a run that is bound round by round.
  Binder binder_;
  std::vector<BoundAction> actions_;
};

}  // namespace farandole
