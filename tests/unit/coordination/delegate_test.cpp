// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: what a coordinator runs by a delegate is in the timeline as any collective is.
// Method: the copier as the cheapest of all; the timelines of two ranks, read back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "farandole/coordinator.hpp"
#include "unit/frontend/copier.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CoordinatedDelegate, IsInTheTimeline) {
  const std::filesystem::path folder = ::testing::TempDir();
  const std::string stem = "delegate_timeline." + std::to_string(getpid());
  const auto file = [&](int rank) {
    return folder / (stem + ".rank-" + std::to_string(rank) + ".json");
  };
  Copier::cheap = Copier::add("copier");
  {
    Contexts contexts = make_ranks(2, "inproc");
    run_ranks(contexts, [&](Context& context, Communicator& world) {
      ASSERT_TRUE(context.start_timeline((folder / (stem + ".json")).string()));
      auto coordinator = Coordinator::create(context, world, CoordinatorOptions{});
      ASSERT_TRUE(coordinator) << coordinator.error().message;
      std::vector<float> values(1000, 1.0F);
      auto submitted = (*coordinator)
                           ->submit({{.name = "weights",
                                      .shape = {1000},
                                      .in = values.data(),
                                      .out = values.data()}});
      ASSERT_TRUE(submitted) << submitted.error().message;
      ASSERT_TRUE(submitted->front().wait());
      EXPECT_EQ(values, std::vector<float>(1000, 2.0F));
      const auto plans = context.statistics().plans;
      EXPECT_TRUE(plans.contains("allreduce copier"));
      ASSERT_TRUE(world.barrier());
      coordinator->reset();
      ASSERT_TRUE(context.stop_timeline());
    });
  }
  Copier::cheap.clear();
  for (const int rank : {0, 1}) {
    const std::string text = text_of(file(rank));
    EXPECT_NE(text.find("weights"), std::string::npos) << text;
    EXPECT_NE(text.find("\"name\":\"collective\""), std::string::npos) << text;
    std::filesystem::remove(file(rank));
  }
}

}  // namespace
}  // namespace farandole::testing
