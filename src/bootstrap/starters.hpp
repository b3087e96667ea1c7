// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "farandole/job.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Names of variables that mean the same; the first that is set counts. Unused ones are null.
using Names = std::array<const char*, 3>;
/// The value of a variable of an environment, unless it is unset or empty.
using Lookup = std::function<std::optional<std::string>(const char*)>;

/// The variables by which one kind of starter tells processes about their job.
struct Starter {
  /// How rank 0 is found.
  enum class Meeting : std::uint8_t {
    kOwn,     // FARANDOLE_RENDEZVOUS
    kMaster,  // MASTER_ADDR and MASTER_PORT, which name the job as well
    kHost,    // on one host: loopback; else MASTER_ADDR, and MASTER_PORT if no job is named
    kNone,    // the starter does not tell both rank and size: see `remedy`
  };

  const char* name;  // as Context::started_by() gives it
  Meeting meeting;
  Names rank{}, size{}, local_rank{}, local_size{};
  /// Together they name the job: the same in all its processes, on all hosts, and in no other job.
  Names job{}, step{};
  /// Whether a process with these variables is one that this starter started; null: always.
  bool (*applies)(const Lookup& variable) = nullptr;
  /// Completes rank 0's address and the local numbers where the names above do not tell them.
  Result<void> (*complete)(Job& job) = nullptr;
  const char* remedy = nullptr;
};

/// All starters that are known; where a process sees the variables of several, the first counts.
std::span<const Starter> starters();

/// The starter of a process with these variables: the first that told it rank and size, else the
/// first that told it one of them, which shows that it is one of several. Null: none, it is alone.
const Starter* starter_of(const Lookup& variable);

/// The name of the first variable of `names` that is set, or null.
const char* first_set(const Names& names, const Lookup& variable);

/// "NAME=value, NAME=value": those of rank and size that are set.
std::string what_it_told(const Starter& starter, const Lookup& variable);

}  // namespace farandole
