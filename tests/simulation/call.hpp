// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective.hpp"
#include "simulation/scenario.hpp"

namespace farandole::simulation {

/// One rank's call of a collective: its memory, and what has to be in it at the end. Every element
/// tells its call, rank and place, and all sums are exact.
class Call {
 public:
  /// `number` tells this operation's values from those of others.
  Call(const CallPlan& plan, std::uint64_t number, int rank, int size);

  /// The operation on this memory. `terms` has the group.
  std::shared_ptr<CollectiveOperation> operation(OperationTerms terms, OperationId id) const;
  Signature signature() const;
  /// The memory as it was at first.
  void reset();
  const CallPlan& plan() const { return plan_; }
  const std::byte* in() const { return in_; }
  std::byte* out() const { return out_; }
  /// What is wrong with the memory once the operation has ended well; empty if nothing is.
  std::string wrong() const;
  /// Whether something was written outside the buffers, or into an input that is none of the
  /// result.
  std::string damage() const;

 private:
  std::optional<std::int64_t> in_offset() const;
  std::int64_t input(int rank, std::size_t at) const;
  std::int64_t reduced(std::size_t at) const;
  std::int64_t expected(std::size_t at) const;
  std::int64_t read(const std::byte* from, std::size_t at) const;
  void write(std::byte* to, std::size_t at, std::int64_t value) const;
  bool promised() const;

  const CallPlan plan_;
  const std::uint64_t number_;
  const int rank_, size_;
  std::size_t in_count_ = 0, out_count_ = 0;
  std::vector<std::byte> memory_;  // guard, in, guard, out, guard
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

/// "allreduce of 12 by ring"
std::string describe(const CallPlan& plan);

}  // namespace farandole::simulation
