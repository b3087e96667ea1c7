// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "device/stream.hpp"
#include "engine/group.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "reduce/reduce.hpp"
#include "schedule/layout.hpp"
#include "schedule/program.hpp"
#include "transport/transport.hpp"

namespace farandole {

/// Everything that an operation needs to run by itself.
struct OperationSpec {
  OperationId id;
  std::shared_ptr<const Group> group;
  std::shared_ptr<const Program> program;
  Layout layout = Layout::repeat(Count{0}, 1);
  DType dtype = DType::kUInt8;
  ReduceKernel kernel = nullptr;  // none when nothing is reduced
  std::size_t divisor = 1;        // `out` is divided by it at the end: the average
  Count out_count;                // elements of `out`
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::shared_ptr<std::byte> scratch;    // library memory, scratch_slots of the program
  std::shared_ptr<std::byte> staged_in;  // keeps a library copy of the input alive, if any
  Signature signature;
  std::string name;  // the caller's, may be empty
  std::shared_ptr<Stream> stream;
  Deadline deadline = Deadline::never();
};

/// One collective in flight: a position in a program and the transfers of the current round.
///
/// Threads   step() and fail() from the engine's driver. finished() and sleep_until_finished() from
/// any. Memory    Allocates in its constructor only, on the submitting thread.
class Operation {
 public:
  explicit Operation(OperationSpec spec);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Advances as far as possible without waiting; true if anything happened. Zero or more rounds.
  bool step();
  /// Ends the operation with an error. It is finished once no transport touches its memory.
  void fail(Error error);
  bool failing() const { return failing_; }
  /// Ends a failing operation although a transport may still read its memory; for shutdown only.
  void abandon() { finish(); }
  /// The receive whose message came from an operation that is not this one, or none.
  const Transfer* disagreement() const { return disagreement_; }

  bool finished() const { return phase_.load(std::memory_order_acquire) == kFinished; }
  /// Sleeps until another thread finished it, at most `timeout`; may return early.
  void sleep_until_finished(std::chrono::nanoseconds timeout);
  /// Valid once finished().
  const Result<void>& outcome() const { return outcome_; }

  const OperationSpec& spec() const { return spec_; }
  /// "allreduce 'grad' (communicator 0, operation 17)"
  std::string description() const;
  /// For dumps: position and the transfers that are open.
  std::string state() const;

  Operation* next = nullptr;             // the engine's list
  std::shared_ptr<Operation> in_flight;  // set while the engine holds the operation

 private:
  struct Slot {
    Send send;
    Receive receive;
    const Action* action = nullptr;
    enum class State : std::uint8_t { kHeld, kOpen, kDone } state = State::kDone;
    std::byte* target = nullptr;
    const std::byte* operand = nullptr;
    const Operation* owner = nullptr;
  };
  struct Place {
    std::byte* data;
    Bytes bytes;
  };

  bool advance();  // to the next round; false at the end of the program
  void open_round(const Program::Instruction& round);
  void open(Slot& slot);
  bool poll_round();  // true if a slot changed
  bool close_slot(Slot& slot, const Transfer& transfer);
  void finish();
  bool takes_part(const Action& action) const;
  std::int64_t value(const Expr& expr) const { return expr.evaluate(0, loops_); }
  Place place(const Span& span) const;
  void reduce(const Slot& slot, Bytes offset, const std::byte* incoming, Bytes bytes) const;
  static void consume(void* context, Bytes offset, const std::byte* data, Bytes bytes);

  const OperationSpec spec_;
  Stream::Mark mark_ = 0;
  bool started_ = false;
  bool failing_ = false;
  std::size_t position_ = 0;  // in program->instructions
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
  std::vector<Slot> slots_;     // [actions_per_round_max]
  std::size_t open_count_ = 0;  // slots not kDone in this round
  std::size_t slot_count_ = 0;  // slots used in this round
  const Transfer* disagreement_ = nullptr;
  Result<void> outcome_;
  static constexpr std::uint32_t kRunning = 0, kSleptOn = 1, kFinished = 2;
  std::atomic<std::uint32_t> phase_{kRunning};
};

}  // namespace farandole
