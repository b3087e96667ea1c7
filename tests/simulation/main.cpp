// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The tests of the simulation; with --seed its driver:
//   simulation --seed 17 [--count 1000] [--ranks 4] [--fault death] [--shipped] [--loud]
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "simulation/world.hpp"

namespace farandole::simulation {
namespace {

struct Wishes {
  std::optional<std::uint64_t> seed;
  std::uint64_t count = 1;
  std::optional<int> ranks;
  std::optional<Fault> fault;
  bool loud = false, shipped = false;
};

std::optional<Fault> parse_fault(const std::string& text) {
  for (int i = 0; i < kFaultCount; ++i) {
    if (name(static_cast<Fault>(i)) == text) return static_cast<Fault>(i);
  }
  return std::nullopt;
}

Wishes parse(const std::vector<std::string>& words) {
  Wishes wishes;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--seed") wishes.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (words[i] == "--count") wishes.count = std::strtoull(value.c_str(), nullptr, 10);
    if (words[i] == "--ranks") wishes.ranks = std::atoi(value.c_str());
    if (words[i] == "--fault") wishes.fault = parse_fault(value);
    wishes.loud |= words[i] == "--loud";
    wishes.shipped |= words[i] == "--shipped";
  }
  return wishes;
}

int drive(const Wishes& wishes, const std::string& program) {
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t operations = 0, failures = 0, red = 0;
  for (std::uint64_t i = 0; i < wishes.count; ++i) {
    const std::uint64_t seed = *wishes.seed + i;
    Scenario scenario = draw_scenario(seed, wishes.ranks, wishes.fault);
    scenario.shipped_control = wishes.shipped;
    const Report report = run(scenario, wishes.loud);
    operations += report.operations;
    failures += report.failures;
    if (wishes.loud) std::printf("trace %016lx\n", static_cast<unsigned long>(report.trace));
    if (report.violation.empty()) continue;
    ++red;
    std::string wished;
    if (wishes.ranks) wished += " --ranks " + std::to_string(*wishes.ranks);
    if (wishes.shipped) wished += " --shipped";
    if (wishes.fault) wished += " --fault " + name(*wishes.fault);
    std::printf("%s --seed %lu%s  # %s on %d ranks: %s\n", program.c_str(),
                static_cast<unsigned long>(seed), wished.c_str(), name(scenario.fault).c_str(),
                scenario.rank_count, report.violation.c_str());
    std::fflush(stdout);
    if (red == 20) break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "%lu seeds from %lu, %lu operations, %lu failed as they should, %lu seeds red, %.1f s\n",
      static_cast<unsigned long>(wishes.count), static_cast<unsigned long>(*wishes.seed),
      static_cast<unsigned long>(operations), static_cast<unsigned long>(failures),
      static_cast<unsigned long>(red), took.count());
  return red == 0 ? 0 : 1;
}

}  // namespace
}  // namespace farandole::simulation

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto wishes = farandole::simulation::parse(words);
  if (wishes.seed) return farandole::simulation::drive(wishes, argv[0]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
