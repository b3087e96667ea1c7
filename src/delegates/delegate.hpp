// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"

// A delegate runs whole collectives elsewhere: in another library, or in threads of its own. Like a
// schedule it is a row of the algorithm table (algorithms/registered.hpp) with a price, and each of
// its runs is an operation of the engine, with the same deadlines and failures.
namespace farandole {

/// What a call asks of a delegate.
struct DelegateQuery {
  Collective collective;
  DType dtype;
  Reduction reduction;              // for collectives that reduce
  std::string_view device = "cpu";  // whose memory the buffers lie in, as Device::name()
};

/// The time of one call: `seconds` + bytes * `seconds_per_byte`, where bytes are those of a rank's
/// input or output, whichever is larger.
struct DelegatePrice {
  double seconds = 0;
  double seconds_per_byte = 0;
  double of(double bytes) const { return seconds + bytes * seconds_per_byte; }
};

/// The ranks of one communicator.
struct DelegateMembers {
  struct Member {
    Rank world_rank;
    std::string host;  // equal for ranks of one host
    int pid = 0;
  };
  std::string job;                 // two jobs never share it
  std::uint32_t communicator = 0;  // with the first member, unique in the job at any time
  Rank self{0};                    // in `members`
  std::vector<Member> members;
  /// Makes the engine poll. From any thread, until the group is destroyed; an unnecessary call does
  /// no harm. An engine that is not woken polls at least every 100 ms.
  std::function<void()> wake;
};

/// One rank's part in one collective. Its buffers are the delegate's until the run has ended.
struct DelegateCall {
  std::uint32_t sequence = 0;  // equal on all ranks, rising; numbers may be skipped
  Collective collective;
  const void* in = nullptr;
  void* out = nullptr;  // may be `in`, as farandole.hpp defines it
  Count count;
  DType dtype;
  Reduction reduction;
  Rank root{0};
};

/// A collective in flight. Destroying one that has not ended waits until its buffers are the
/// caller's again; that happens only when the library shuts down.
///
/// Threads   the engine's driver only, one call at a time.
/// Blocking  poll() and abort() do not block.
class DelegateRun {
 public:
  virtual ~DelegateRun();
  /// Nothing while it runs; then how it ended, and the buffers of the call are the caller's again.
  virtual std::optional<Result<void>> poll() = 0;
  /// Ends this rank's part. Called again until it returns true: the buffers are the caller's again.
  virtual bool abort() = 0;
};

/// A delegate's own communicator, which stands for one of the library's.
class DelegateGroup {
 public:
  virtual ~DelegateGroup();
  /// From the engine's driver; does not block. Runs of one group start in the same order on all
  /// ranks, unless the ranks call different collectives: then a run waits until it is aborted.
  virtual Result<std::unique_ptr<DelegateRun>> start(const DelegateCall& call) = 0;
};

/// Threads   all functions from any thread. Immutable.
class Delegate {
 public:
  virtual ~Delegate();
  virtual std::string_view name() const = 0;     // as an algorithm: a-z, 0-9 and _
  virtual std::string_view summary() const = 0;  // one line for people
  virtual std::span<const Collective> collectives() const = 0;
  virtual bool supports(const DelegateQuery& query) const = 0;
  /// Whether it can connect these ranks; the same answer on all of them.
  virtual bool reaches(const DelegateMembers& members) const = 0;
  virtual DelegatePrice price(Collective collective, std::int64_t rank_count,
                              std::int64_t ranks_per_host) const = 0;
  /// Called on all ranks of a communicator, on each at its first call; may block until all have
  /// joined.
  virtual Result<std::shared_ptr<DelegateGroup>> join(const DelegateMembers& members) const = 0;
};

}  // namespace farandole
