// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/rank_set.hpp"
#include "coordinator/request.hpp"
#include "farandole/result.hpp"

namespace farandole::coordinator {

/// What a rank, or a whole subtree, tells its parent in a cycle that the cache does not decide.
struct Report {
  struct Disagreement {
    std::int32_t rank;
    SharedRequest request;
  };
  struct Item {
    SharedRequest request;                     // as the lowest rank in `ranks` asked for it
    RankSet ranks;                             // all that asked for this name
    std::optional<Disagreement> disagreement;  // the lowest one that asked for something else
  };
  std::vector<Item> items;           // no name twice
  std::vector<std::string> invalid;  // names whose cache entries must go; sorted, no name twice
  RankSet joined;                    // since the last report
};

/// Merges into `into` what both say about one name; either may have the lower ranks. `other` is
/// left with the rest.
void merge(Report::Item& into, Report::Item& other);
/// Merges `other`, which comes from higher ranks, into `into`. Associative.
void merge(Report& into, Report&& other);

/// What all ranks do now, in order. If `error` is not empty, the request fails on every rank that
/// asked for it: with kTimedOut if some ranks never asked, else with kMismatch.
struct Response {
  SharedRequest request;  // as the lowest rank that takes part asked for it, now or when it was
                          // put into the cache
  std::string error;
  RankSet late;  // ranks that have joined, but after they asked: they take part with their data
  ErrorKind kind = ErrorKind::kMismatch;  // of the error
};

/// Settings that rank 0 may change while the job runs, on every rank in the same cycle.
struct Parameters {
  std::uint64_t cycle_time_ns = 1'000'000;
  std::uint64_t fusion_threshold_bytes = std::uint64_t{128} << 20;
  std::int32_t size_shift = 0;  // algorithms are chosen as for 2^size_shift times the bytes
  bool operator==(const Parameters&) const = default;
};

/// What rank 0 answers.
struct Decision {
  std::vector<std::string> invalid;        // leave the cache first
  RankSet joined;                          // ranks that have joined since the last decision
  std::vector<Response> responses;         // then these run
  std::optional<std::int32_t> all_joined;  // every rank has; this one was the last
  std::optional<Parameters> parameters;
};

std::string encode(const Report& report);
std::string encode(const Decision& decision);
/// Errors    kInternal if the bytes are not such a message, whole and well-formed.
Result<Report> decode_report(std::string_view bytes);
Result<Decision> decode_decision(std::string_view bytes);

}  // namespace farandole::coordinator
