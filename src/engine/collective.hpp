// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
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
  struct Narrowed {
    std::byte* out = nullptr;
    Count count;
    DType dtype = DType::kUInt8;
    std::size_t divisor = 1;
  } narrowed;  // where the average of integers goes whose wide sums are in `out`
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
  void renew(const void* in, void* out, std::string_view name, std::uint64_t submitted) {
    Operation::renew(name, submitted);
    set_buffers(in, out);
    position_ = 0;
    replayed_ = 0;
    round_ = {};
    open_count_ = 0;
  }
  const OperationId* id() const override { return &spec_.id; }
  Signature signature() const override { return spec_.signature; }
  void withdraw(Farewell& words) const override;
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
  /// An action of this rank in one iteration, and its transfer.
  struct Slot {
    // The same in every run.
    const Action* action = nullptr;
    Transport* transport = nullptr;
    Transfer* transfer = nullptr;  // `send` or `receive`; none if it is local
    Place source, target, operand;
    bool held = false;            // until the one before is done
    const Slot* rides = nullptr;  // a local copy: on this send of its source
    Slot* opened_next = nullptr;  // of its round
    const CollectiveOperation* owner = nullptr;
    // Of this run.
    enum class State : std::uint8_t { kHeld, kOpen, kDone } state = State::kDone;
    std::byte* written = nullptr;
    const std::byte* operand_data = nullptr;
    Send send;
    Receive receive;

    bool receives() const { return transfer == &receive; }
  };
  /// What is open at one time, in slots_.
  struct Round {
    std::uint32_t first = 0, count = 0;
    Slot* opened_first = nullptr;
    std::size_t position = 0;  // in the program, after it
  };
  bool begin() override;
  bool advance() override;  // zero or more rounds
  bool cancel() override;
  std::uint64_t progress() const override;
  bool next_round();  // false at the end of the program
  bool find_round();  // likewise
  void record();
  Slot* flows_into(const Round& first, const Round& second);
  bool copies_beside(const Round& first, const Round& second) const;
  bool copies_beside(const Slot& before, const Slot& copy) const;
  const Slot* carrier(const Round& round, const Slot& copy) const;
  void prepare_round(const Program::Instruction& round);
  void prepare(Slot& slot, const Action& action);
  void refuse_unequal();
  void ride_sends(const Round& round);
  void put_in_order(Round& round);
  void open_round();
  void open(Slot& slot);
  bool poll_round();  // true if a slot changed
  bool close(Slot& slot);
  void copy(Slot& slot, Bytes bytes) const;  // on from where it is
  std::span<Slot> slots_of(const Round& round) {
    return std::span(slots_).subspan(round.first, round.count);
  }
  std::span<Slot> round() { return slots_of(round_); }
  std::span<const Slot> slots_of(const Round& round) const {
    return std::span(slots_).subspan(round.first, round.count);
  }
  std::span<const Slot> round() const { return slots_of(round_); }
  bool takes_part(const Action& action) const;
  bool is_idle(const Slot& slot) const;
  static bool follows(const Slot& before, const Slot& slot);
  static bool streams(const Slot& slot);
  static bool outgrows_caches(const Slot& copy);
  static bool is_small(const Place& place);
  bool same_memory(const Place& a, const Place& b) const;
  bool is_same(const Place& a, const Place& b) const;
  bool overlap(const Place& a, const Place& b) const;
  std::int64_t value(const Expr& expr) const { return expr.evaluate(0, loops_); }
  Place place(const Span& span) const;
  std::byte* at(const Place& place) const {
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
  void reduce(const Slot& slot, Bytes offset, const std::byte* incoming, Bytes bytes) const;
  bool divides_at(const Action& action) const;
  static void consume(void* context, Bytes offset, const std::byte* data, Bytes bytes);
  static void copy_along(void* context, Bytes end);

  CollectiveSpec spec_;                  // without its terms, which are terms()
  std::array<std::byte*, 3> buffers_{};  // by Buffer
  std::size_t position_ = 0;             // in program->instructions
  std::array<std::int64_t, Expr::kLoopDepthMax> loops_{};
  // Of a whole run, found once for all runs to replay, in which a round may begin with the one that
  // fills what it sends; of a long program only the current round's.
  std::vector<Slot> slots_;
  std::vector<Round> rounds_;
  const bool replays_;
  bool unequal_ = false;        // some action's ends differ in length; nothing of it is run
  const bool in_place_;         // an allreduce that takes its results where peers read its input
  std::size_t replayed_ = 0;    // of rounds_
  Round round_;                 // the current one
  std::size_t open_count_ = 0;  // its slots that are not kDone
};

}  // namespace farandole
