// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gpu.hpp"

#include <gtest/gtest.h>

#include "simcuda/simulated.hpp"

namespace farandole::cuda {
namespace {

using testing::Simulated;

TEST(Driver, SaysWhatIsMissing) {
  const auto none = Driver::load("no-such-library.so");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(none.error().message.find("no-such-library.so"), std::string::npos);
  // A library that is there, and has none of the functions.
  const auto other = Driver::load("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("has no cuInit"), std::string::npos)
      << other.error().message;
}

TEST(Driver, NamesTheCallThatFailed) {
  const Simulated gpu;
  EXPECT_TRUE(gpu.driver().check(kSuccess, "cuInit"));
  const auto failed = gpu.driver().check(kOutOfMemory, "cuMemAlloc_v2");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "cuMemAlloc_v2: CUDA_ERROR_2 (simulated)");
}

TEST(Gpu, PutsTheContextBackThatWasThere) {
  const Simulated simulated;
  const auto gpu = Gpu::open(simulated.driver(), 0);
  ASSERT_TRUE(gpu);
  simulated.check(simulated.api().context_set(nullptr));
  Context now = nullptr;
  {
    const Gpu::Scope scope(**gpu);
    simulated.check(simulated.api().context_get(&now));
    EXPECT_NE(now, nullptr);
  }
  simulated.check(simulated.api().context_get(&now));
  EXPECT_EQ(now, nullptr);
  const auto none = Gpu::open(simulated.driver(), 99);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kInvalidArgument);
}

// Goal: an event is given out again only when nobody holds it.
TEST(EventPool, GivesOutWhatNobodyHolds) {
  const Simulated simulated;
  const auto gpu = Gpu::open(simulated.driver(), 0);
  ASSERT_TRUE(gpu);
  const auto pool = std::make_shared<EventPool>(*gpu);
  auto first = pool->take(), second = pool->take();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE(first->get(), second->get());
  const Event event = first->get();
  const EventPool::Held kept = *first;
  *first = nullptr;
  auto third = pool->take();
  ASSERT_TRUE(third);
  EXPECT_NE(third->get(), event);
}

}  // namespace
}  // namespace farandole::cuda
