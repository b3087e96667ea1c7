// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/operation.hpp"
#include "farandole/types.hpp"
#include "reduce/reduce.hpp"
#include "schedule/layout.hpp"
#include "schedule/program.hpp"

namespace farandole {

/// Everything that a collective needs to run by itself.
struct CollectiveSpec {
  OperationTerms terms;
  OperationId id;
  std::shared_ptr<const Program> program;
  Layout in_layout = Layout::repeat(Count{0}, 1);
  Layout out_layout = Layout::repeat(Count{0}, 1);
  Layout chunks = Layout::repeat(Count{0}, 1);  // of the data: the shapes that scratch takes
  DType dtype = DType::kUInt8;
  ReduceKernel kernel = nullptr;  // none when nothing is reduced
  std::size_t divisor = 1;        // what is reduced from all ranks is divided by it: the average
  Count out_count;                // elements of `out` that the caller is promised
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::shared_ptr<std::byte> scratch;     // library memory, scratch_slots of the program
  std::shared_ptr<std::byte> staged_in;   // keeps a library copy of the input alive, if any
  std::shared_ptr<std::byte> staged_out;  // keeps an output alive that the caller did not give
  Signature signature;
};

/// One collective in flight: a position in a program and the transfers of the current round.
class CollectiveOperation final : public Operation {
 public:
  explicit CollectiveOperation(CollectiveSpec spec);

  const CollectiveSpec& spec() const { return spec_; }
  void set_id(OperationId id) { spec_.id = id; }
  /// Ready to run once more on these buffers, which are in place if the last ones were. Nothing is
  /// allocated unless the name is long.
  void renew(const void* in, void* out, std::string_view name, std::uint64_t submitted);
  const OperationId* id() const override { return &spec_.id; }
  std::optional<Rank> lost_peer() const override;
  bool done_by(Rank world_rank, const Farewell& farewell) const override;
  std::string description() const override;
  std::string state() const override;

 private:
  struct Place {
    Buffer buffer = Buffer::kIn;
    std::size_t offset = 0;  // bytes
    Bytes bytes;
  };
  /// What an action does in this iteration.
  struct Resolved {
    bool takes_part = false;
    std::size_t peer = 0;  // in the group
    Place source, target, operand;
  };

  struct Slot {
    Send send;
    Receive receive;
    const Action* action = nullptr;
    const Resolved* resolved = nullptr;
    enum class State : std::uint8_t { kHeld, kOpen, kDone } state = State::kDone;
    std::byte* target = nullptr;
    const std::byte* operand = nullptr;
    const CollectiveOperation* owner = nullptr;
  };
  bool begin() override;
  bool advance() override;  // zero or more rounds
  bool cancel() override;
  bool next_round();  // false at the end of the program
  void open_round(const Program::Instruction& round);
  void open(Slot& slot);
  bool poll_round();  // true if a slot changed
  bool close_slot(Slot& slot, const Transfer& transfer);
  bool takes_part(const Action& action) const;
  bool follows(std::size_t i) const;
  std::int64_t value(const Expr& expr) const { return expr.evaluate(0, loops_); }
  const Resolved& resolve(const Action& action);
  Resolved resolved(const Action& action) const;
  Place place(const Span& span) const;
  std::byte* at(const Place& place) const;
  void reduce(const Slot& slot, Bytes offset, const std::byte* incoming, Bytes bytes) const;
  bool divides_at(const Action& action) const;
  static void consume(void* context, Bytes offset, const std::byte* data, Bytes bytes);

  CollectiveSpec spec_;       // without its terms, which are terms()
  std::size_t position_ = 0;  // in program->instructions
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
  std::vector<Slot> slots_;  // [actions_per_round_max]
  // What the actions of a run do, one after the other, for the next runs to do the same; of a long
  // program only the current round's, [actions_per_round_max].
  std::vector<Resolved> resolved_;
  const bool replays_;
  const bool in_place_;  // an allreduce that takes its results where peers read its input
  std::size_t resolved_count_ = 0;  // valid in resolved_
  std::size_t next_resolved_ = 0;
  std::size_t open_count_ = 0;  // slots not kDone in this round
  std::size_t slot_count_ = 0;  // slots used in this round
};

}  // namespace farandole
