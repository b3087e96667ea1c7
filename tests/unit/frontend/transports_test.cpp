// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/transports.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "farandole/farandole.hpp"
#include "transport/registry.hpp"
#include "unit/planner/costs.hpp"

namespace farandole {
namespace {

void expect_equal(const MessageCost& a, const MessageCost& b) {
  EXPECT_EQ(a.alpha, b.alpha);
  EXPECT_EQ(a.overhead, b.overhead);
  EXPECT_EQ(a.bytes_per_second, b.bytes_per_second);
  EXPECT_EQ(a.fill_chunks, b.fill_chunks);
  EXPECT_EQ(a.crowding, b.crowding);
  EXPECT_EQ(a.through_memory, b.through_memory);
  EXPECT_EQ(a.reduce_bytes_per_second, b.reduce_bytes_per_second);
}

// Goal: the planner's tests are about what the transports say of themselves.
// Method: every distance that changes a cost.
TEST(Transports, CostsAreThoseOfThePlannersTests) {
  for (const double cores : {0.0, 2.0, 4.0, 16.0}) {
    const Distance inside{.ranks_per_host = 8, .cores = cores};
    Distance between = inside;
    between.same_host = false;
    for (const char* setting : {"auto", "shm"}) {
      expect_equal(transport_for(setting, true).cost(inside), memory_cost(inside));
      expect_equal(transport_for(setting, false).cost(between), socket_cost(between));
    }
    expect_equal(transport_for("tcp", true).cost(inside), socket_cost(inside));
    expect_equal(transport_for("tcp", false).cost(between), socket_cost(between));
  }
}

// Goal: what a communicator plans by without a machine is made of the transports' costs.
// Method: the numbers of a machine, where ranks have cores of their own and where they share them.
TEST(Transports, AssumedMachineHasTheirCosts) {
  const Machine memory = assumed_machine(4, 2, "auto", 2);
  EXPECT_EQ(memory.hops[static_cast<std::size_t>(Hop::kHost)].alpha, 3e-6);
  EXPECT_EQ(memory.hops[static_cast<std::size_t>(Hop::kRack)].alpha, 30e-6);
  EXPECT_EQ(memory.nodes[0].kind, Machine::Kind::kMemory);
  const Machine sockets = assumed_machine(4, 1, "tcp");
  EXPECT_EQ(sockets.hops[static_cast<std::size_t>(Hop::kHost)].alpha, 15e-6);
  EXPECT_EQ(sockets.nodes[0].kind, Machine::Kind::kSwitch);
}

// Goal: ways through shared memory are switched off by name, and a wrong name is an error that says
// which are right. Method: contexts that start with the setting.
TEST(Transports, WaysAreSwitchedOffBySetting) {
  const auto start = [](const char* without) {
    EXPECT_EQ(setenv("FARANDOLE_SHM_WITHOUT", without, 1), 0);
    auto made = Context::inproc(2, true, "shm");
    EXPECT_EQ(unsetenv("FARANDOLE_SHM_WITHOUT"), 0);
    return made;
  };
  const auto wrong = start("puts,pushes");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find("FARANDOLE_SHM_WITHOUT: 'pushes'"), std::string::npos)
      << wrong.error().message;
  auto made = start("in_place,kernel");
  ASSERT_TRUE(made) << made.error().message;
  for (const auto& context : *made) EXPECT_FALSE(context->reaches_all_memory());
}

}  // namespace
}  // namespace farandole
