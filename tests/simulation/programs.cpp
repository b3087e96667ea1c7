// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/programs.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include "algorithms/registry.hpp"
#include "schedule/passes/synchronize.hpp"

namespace farandole::simulation {

const std::vector<std::string>& algorithms_for(Collective collective, int size) {
  static std::map<std::pair<Collective, int>, std::vector<std::string>> known;
  auto& names = known[{collective, size}];
  if (!names.empty()) return names;
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective != collective) continue;
    if (build_schedule(collective, info->name, size, 0)) names.emplace_back(info->name);
  }
  return names;
}

std::uint8_t algorithm_index(Collective collective, const std::string& algorithm) {
  std::uint8_t index = 0;
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective == collective && info->name == algorithm) break;
    ++index;
  }
  return index;
}

std::shared_ptr<const Program> program_for(Collective collective, const std::string& algorithm,
                                           int size, int root, int rank) {
  static std::map<std::tuple<Collective, std::string, int, int>,
                  std::vector<std::shared_ptr<const Program>>>
      known;
  auto& programs = known[{collective, algorithm, size, root}];
  if (programs.empty()) {
    auto schedule = build_schedule(collective, algorithm, size, root);
    if (schedule && has_root(collective)) schedule = synchronized(*std::move(schedule));
    auto verified = schedule ? verify(*std::move(schedule)) : schedule.error();
    if (!verified) {
      std::fprintf(stderr, "%s: %s\n", algorithm.c_str(), verified.error().message.c_str());
      std::abort();
    }
    for (int each = 0; each < size; ++each) {
      programs.push_back(std::make_shared<const Program>(specialize(*verified, each)));
    }
  }
  return programs[static_cast<std::size_t>(rank)];
}

}  // namespace farandole::simulation
