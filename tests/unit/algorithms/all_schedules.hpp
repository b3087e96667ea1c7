// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"

namespace farandole {

/// Sizes of layers, innermost first: every way to write rank_count as a product of factors >= 2
/// in some order; {1} for one rank.
inline std::vector<std::vector<std::int64_t>> factorizations(std::int64_t rank_count) {
  if (rank_count == 1) return {{1}};
  std::vector<std::vector<std::int64_t>> all = {{rank_count}};
  for (std::int64_t first = 2; first <= rank_count / 2; ++first) {
    if (rank_count % first != 0) continue;
    for (std::vector<std::int64_t> rest : factorizations(rank_count / first)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

/// "layers=..." of these sizes with one kind of layer, or `mixed`: kinds in turn. Halving becomes
/// a ring where the size is no power of two.
inline std::string layers_option(const std::vector<std::int64_t>& sizes, std::string_view kind) {
  std::string text;
  int index = 0;
  for (const std::int64_t size : sizes) {
    constexpr std::string_view kTurns[] = {"direct", "halving", "ring"};
    std::string_view each = kind == "mixed" ? kTurns[index++ % 3] : kind;
    if (each == "halving" && !std::has_single_bit(static_cast<std::uint64_t>(size))) each = "ring";
    text += (text.empty() ? "layers=" : "/") + std::to_string(size) + std::string(each);
  }
  return text;
}

/// Every rank one place to the left of its own, and the second half backwards.
inline std::string order_option(std::int64_t rank_count) {
  std::string text;
  for (std::int64_t i = 0; i < rank_count; ++i) {
    const std::int64_t at = i < rank_count / 2 ? i : rank_count - 1 - i + rank_count / 2;
    text += (text.empty() ? "order=" : "/") + std::to_string((at + 1) % rank_count);
  }
  return text;
}

inline bool has_option(const AlgorithmInfo& info, std::string_view key) {
  return info.options.find(key) != std::string_view::npos;
}

/// The specs to test of one algorithm, itself first.
inline std::vector<std::string> specs_of(const AlgorithmInfo& info, std::int64_t rank_count) {
  const std::string name(info.name);
  std::vector<std::string> specs = {name};
  if (has_option(info, "radix")) {
    for (const char* radix : {"2", "3", "8"}) specs.push_back(name + ":radix=" + radix);
  }
  if (has_option(info, "chunks")) {
    for (const char* chunks : {"1", "3"}) specs.push_back(name + ":chunks=" + chunks);
  }
  if (has_option(info, "layers")) {
    const auto all = factorizations(rank_count);
    for (const char* kind : {"ring", "direct", "mixed"}) {
      specs.push_back(name + ":" + layers_option(all[all.size() / 2], kind));
    }
  }
  if (has_option(info, "order")) specs.push_back(name + ":" + order_option(rank_count));
  return specs;
}

/// What a spec names, which must exist.
inline Schedule built(Collective collective, std::string_view spec, std::int64_t rank_count,
                      std::int64_t root = 0, bool deterministic = false) {
  Result<Schedule> schedule = build_schedule(collective, spec, rank_count, root, deterministic);
  if (schedule) return *std::move(schedule);
  ADD_FAILURE() << schedule.error().message;
  return {};
}

/// Every root up to 9 ranks; the first, a middle and the last one above; 0 where there is none.
inline std::vector<std::int64_t> roots_of(Collective collective, std::int64_t rank_count) {
  std::vector<std::int64_t> roots;
  for (std::int64_t root = 0; root < (has_root(collective) ? rank_count : 1); ++root) {
    const bool chosen = root == 0 || root == rank_count / 2 || root == rank_count - 1;
    if (rank_count <= 9 || chosen) roots.push_back(root);
  }
  return roots;
}

/// Every algorithm over rank_count ranks as it is by default, from the roots above.
inline std::vector<Schedule> default_schedules(std::int64_t rank_count) {
  std::vector<Schedule> schedules;
  for (const AlgorithmInfo* info : algorithms()) {
    for (const std::int64_t root : roots_of(info->collective, rank_count)) {
      schedules.push_back(built(info->collective, info->name, rank_count, root));
    }
  }
  return schedules;
}

/// Every algorithm over rank_count ranks with several of its options, from the roots above.
inline std::vector<Schedule> all_schedules(std::int64_t rank_count) {
  std::vector<Schedule> schedules;
  for (const AlgorithmInfo* info : algorithms()) {
    for (const std::string& spec : specs_of(*info, rank_count)) {
      for (const std::int64_t root : roots_of(info->collective, rank_count)) {
        schedules.push_back(built(info->collective, spec, rank_count, root));
      }
    }
  }
  return schedules;
}

inline std::string described(const Schedule& schedule) {
  return std::string(name(schedule.collective)) + " " + schedule.algorithm + " over " +
         std::to_string(schedule.rank_count) + " ranks, root " + std::to_string(schedule.root);
}

}  // namespace farandole
