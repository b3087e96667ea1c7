// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "coordinator/cache.hpp"
#include "coordinator/messages.hpp"

namespace farandole::coordinator {

class Table;

struct ControllerOptions {
  std::int32_t rank = 0, rank_count = 1;
  std::size_t cache_capacity = 1024;                                 // entries; 0: no cache
  std::chrono::nanoseconds stall_warning{std::chrono::seconds(60)};  // 0: never
  std::chrono::nanoseconds stall_shutdown{0};                        // 0: never
  RankNames names = {};                                              // for messages
  Parameters parameters = {};  // to begin with; the same on every rank
};

/// One operation that every rank starts now.
struct Ready {
  Response response;
  std::shared_ptr<const RankSet> joined;  // the ranks that take part with the neutral element
  bool own = false;                       // this rank asked for it; if there is no error, every
                                          // rank that is not in `joined` did
};

/// What one rank knows, and its part in each cycle. Sends nothing and reads no clock, so that the
/// same code runs in production, in tests of random interleavings, and as 27,600 ranks in one
/// process.
///
/// A cycle, in which every rank takes part:
///   words = propose()            bits of this rank
///   conclude(AND over ranks)     what the cache decides
///   if talks():                  rank 0 decides the rest
///     report() of all ranks, merge()d along the tree, to decide() on rank 0
///     apply(its decision)        on every rank, rank 0 too
///   ready()                      what runs now, in this order, on every rank
///
/// Threads   one at a time.
/// Errors    Bad terms come back as responses with an error; nothing here fails.
class Controller {
 public:
  explicit Controller(const ControllerOptions& options);
  ~Controller();
  Controller(Controller&&) noexcept;
  Controller& operator=(Controller&&) = delete;

  std::int32_t rank() const { return options_.rank; }
  std::int32_t rank_count() const { return options_.rank_count; }

  /// Adds requests that run together, under one label; without a label each runs by itself. Their
  /// names must not be in flight on this rank. The caller has set their group and group_size.
  void add(std::vector<SharedRequest> requests, Clock::time_point now);
  bool in_flight(std::string_view name) const { return open_.contains(name); }
  /// This rank has no more data: it takes part in everything until all ranks have joined. Its
  /// earlier requests still get its data.
  void join();
  bool joined() const { return joined_self_; }

  /// Something was added since this rank last proposed.
  bool has_changes() const { return changed_; }
  /// Requests or a join are still open.
  bool pending() const { return joined_self_ || !submissions_.empty(); }

  /// [1 + extent / 64, rounded up] words: complemented status bits, then one bit per cache
  /// position. A rank that has joined sets every bit, except for requests that it still waits for
  /// itself.
  std::vector<std::uint64_t> propose(Clock::time_point now);
  void conclude(std::span<const std::uint64_t> all);
  /// Some rank has something that the cache does not decide.
  bool talks() const { return talks_; }
  /// Some rank had changes in this cycle.
  bool anybody_changed() const { return anybody_changed_; }
  Report report();
  /// Rank 0 only.
  Decision decide(Report&& all, Clock::time_point now);
  void apply(const Decision& decision);
  std::vector<Ready> ready() { return std::move(ready_); }
  /// The rank that joined last, once all ranks have joined; if several did so in one cycle, the
  /// highest. None when called again.
  std::optional<std::int32_t> take_all_joined() { return std::exchange(all_joined_, {}); }
  /// Rank 0 only: sentences for the log, each stall once: "tensor 'x' (allreduce sum float32[3])
  /// waits since 61 s for ranks 2 and 5; ranks 0, 1, 3 and 4 have asked for it".
  std::vector<std::string> take_stalls() { return std::move(stalls_); }

  const Parameters& parameters() const { return parameters_; }
  /// Rank 0 only: every rank has these from the end of the next cycle on.
  void propose_parameters(const Parameters& parameters);

  struct Statistics {
    std::uint64_t cycles = 0;         // proposed
    std::uint64_t talks = 0;          // cycles that rank 0 had to decide
    std::uint64_t hits = 0;           // requests of this rank that the cache answered
    std::uint64_t misses = 0;         // and those that were reported to rank 0
    std::uint64_t evictions = 0;      // from the cache, to make room
    std::uint64_t invalidations = 0;  // from the cache, because a rank's terms were different
  };
  Statistics statistics() const;
  const Cache& cache() const { return cache_; }

 private:
  enum class State : std::uint8_t {
    kWaiting,   // not looked at in this cycle
    kProposed,  // as hits, in this cycle
    kUncached,  // to be reported
    kReported,  // until the decision; none of its names is in the cache
  };
  /// Requests that were added together.
  struct Submission {
    std::vector<SharedRequest> requests;  // null: answered
    std::size_t open_count;               // not answered
    Clock::time_point since;
    State state = State::kWaiting;
  };
  using Submissions = std::list<Submission>;
  struct Entry {
    Submissions::iterator submission;
    std::size_t index;
  };

  bool takes_part_without_data() const { return joined_->contains(options_.rank); }
  bool offer(Submission& submission, Clock::time_point now, std::span<std::uint64_t> bits);
  void withhold(const Submission& submission, std::span<std::uint64_t> bits) const;
  std::vector<std::uint32_t> agreed_positions(std::span<const std::uint64_t> bits) const;
  void keep_whole_groups(std::vector<std::uint32_t>& positions) const;
  std::vector<std::string> objections(const std::vector<std::uint32_t>& positions) const;
  bool answer(const std::string& name, State state);

  ControllerOptions options_;
  Cache cache_;
  Submissions submissions_;                           // in order of add()
  std::unordered_map<std::string_view, Entry> open_;  // by name
  std::vector<std::uint32_t> positions_;              // scratch of offer()
  std::shared_ptr<const RankSet> joined_;             // the same on every rank
  bool joined_self_ = false;                          // join() was called
  bool join_proposed_ = false;  // before this cycle began: nothing is offered as a hit any more
  bool join_reported_ = false;
  bool changed_ = false, talks_ = false, anybody_changed_ = false;
  std::vector<Ready> ready_;
  std::optional<std::int32_t> all_joined_;
  Parameters parameters_;
  Statistics statistics_;
  // Rank 0 only:
  std::unique_ptr<Table> table_;
  std::optional<Parameters> proposed_parameters_;
  std::vector<std::string> stalls_;
};

}  // namespace farandole::coordinator
