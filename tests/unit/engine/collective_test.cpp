// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "schedule/builder.hpp"

namespace farandole {
namespace {

/// Alltoall of one rank: its own block, once in a round of its own, once in a loop so long that no
/// run of it is recorded.
Program own_block(std::int64_t times) {
  ScheduleBuilder b(Collective::kAlltoall, "own", 1, 1);
  b.loop(times, [&](const Expr&) { b.round().copy(out(0), in(0)); });
  auto verified = verify(std::move(b).build());
  if (!verified) ADD_FAILURE() << verified.error().message;
  return specialize(*verified, 0);
}

// Goal: whatever counts reach the engine, a local copy never writes behind its target: chunks of
// different lengths are named as our mistake before anything is written.
// Method: layouts that the front end refuses, of a program that is bound at once and of one that is
// bound as it runs; the buffers are as long as the shorter side, with a mark behind.
TEST(CollectiveOperation, RefusesALocalCopyOfUnequalLengths) {
  for (const std::int64_t times : {1, 1000}) {
    for (const auto& [in_count, out_count] : {std::pair(5, 2), std::pair(2, 5)}) {
      const std::array source{1, 2, 3, 4, 5};
      std::array target{-1, -1, -1, -1, -1};
      auto group = std::make_shared<Group>();
      group->world_ranks = {Rank{0}};
      group->transports = {nullptr};
      CollectiveSpec spec;
      spec.terms.group = group;
      spec.terms.stream = std::make_shared<CpuStream>();
      Binding binding;
      binding.program = std::make_shared<const Program>(own_block(times));
      binding.in = Layout::by_counts(std::array{static_cast<std::size_t>(in_count)});
      binding.out = Layout::by_counts(std::array{static_cast<std::size_t>(out_count)});
      binding.dtype = DType::kInt32;
      auto bound = BoundProgram::bind(std::move(binding), flow_of(group));
      ASSERT_EQ(static_cast<bool>(bound), times > 1);
      if (!bound) {
        EXPECT_EQ(bound.error().kind, ErrorKind::kInternal);
        EXPECT_NE(bound.error().message.find("different lengths"), std::string::npos);
        continue;
      }
      spec.bound = *std::move(bound);
      spec.in = reinterpret_cast<const std::byte*>(source.data());
      spec.out = reinterpret_cast<std::byte*>(target.data());
      const auto operation = std::make_shared<CollectiveOperation>(std::move(spec));
      while (!operation->finished()) operation->step();
      ASSERT_FALSE(operation->outcome());
      EXPECT_EQ(operation->outcome().error().kind, ErrorKind::kInternal);
      EXPECT_NE(operation->outcome().error().message.find("different lengths"), std::string::npos);
      EXPECT_EQ(target, (std::array{-1, -1, -1, -1, -1}));
    }
  }
}

}  // namespace
}  // namespace farandole
