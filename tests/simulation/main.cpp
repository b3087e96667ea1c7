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

struct Options {
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

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--seed") options.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (words[i] == "--count") options.count = std::strtoull(value.c_str(), nullptr, 10);
    if (words[i] == "--ranks") options.ranks = std::atoi(value.c_str());
    if (words[i] == "--fault") options.fault = parse_fault(value);
    options.loud |= words[i] == "--loud";
    options.shipped |= words[i] == "--shipped";
  }
  return options;
}

int drive(const Options& options, const std::string& program) {
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t operations = 0, failures = 0, red = 0;
  for (std::uint64_t i = 0; i < options.count; ++i) {
    const std::uint64_t seed = *options.seed + i;
    Scenario scenario = draw_scenario(seed, options.ranks, options.fault);
    scenario.shipped_control = options.shipped;
    const Report report = run(scenario, options.loud);
    operations += report.operations;
    failures += report.failures;
    if (options.loud) std::printf("trace %016lx\n", static_cast<unsigned long>(report.trace));
    if (report.violation.empty()) continue;
    ++red;
    std::string command;
    if (options.ranks) command += " --ranks " + std::to_string(*options.ranks);
    if (options.shipped) command += " --shipped";
    if (options.fault) command += " --fault " + name(*options.fault);
    std::printf("%s --seed %lu%s  # %s on %d ranks: %s\n", program.c_str(),
                static_cast<unsigned long>(seed), command.c_str(), name(scenario.fault).c_str(),
                scenario.rank_count, report.violation.c_str());
    std::fflush(stdout);
    if (red == 20) break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "%lu seeds from %lu, %lu operations, %lu failed as they should, %lu seeds red, %.1f s\n",
      static_cast<unsigned long>(options.count), static_cast<unsigned long>(*options.seed),
      static_cast<unsigned long>(operations), static_cast<unsigned long>(failures),
      static_cast<unsigned long>(red), took.count());
  return red == 0 ? 0 : 1;
}

}  // namespace
}  // namespace farandole::simulation

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = farandole::simulation::parse(words);
  if (options.seed) return farandole::simulation::drive(options, argv[0]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
