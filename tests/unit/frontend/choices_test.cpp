// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/choices.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"
#include "unit/planner/costs.hpp"

namespace farandole::testing {
namespace {

/// Runs one allreduce; the label of the plan that it took.
std::string plan_of_allreduce(Context& context, Communicator& world, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  const auto done = world.allreduce(data.data(), data.data(), Count{count}, DType::kFloat32);
  EXPECT_TRUE(done) << done.error().message;
  for (const float value : data) EXPECT_EQ(value, static_cast<float>(world.size()));
  std::string labels;
  for (const auto& [label, calls] : context.statistics().plans) labels += label + "; ";
  return labels;
}

class TuningFile {
 public:
  explicit TuningFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("farandole-choices-test-" + std::to_string(getpid()) + ".tuning")) {
    std::ofstream(path_) << text;
    setenv("FARANDOLE_TUNING", path_.c_str(), 1);
  }
  ~TuningFile() {
    unsetenv("FARANDOLE_TUNING");
    std::filesystem::remove(path_);
  }

 private:
  std::filesystem::path path_;
};

// Goal: a call takes what the planner names; set_algorithm() changes that for its size class, and
// back. Method: the statistics say what ran.
TEST(Choices, CallsTakeWhatIsChosen) {
  Contexts contexts = make_ranks(4, "shm");
  run_ranks(contexts, [](Context& context, Communicator& world) {
    const Bytes bytes{4000};
    const std::string planned = world.algorithm(Collective::kAllreduce, bytes);
    EXPECT_NE(plan_of_allreduce(context, world, 1000).find("allreduce " + planned),
              std::string::npos);
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, bytes, "hierarchical:layers=2/2"));
    EXPECT_NE(plan_of_allreduce(context, world, 1000).find("hierarchical:layers=2/2"),
              std::string::npos);
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, bytes, ""));
    EXPECT_EQ(world.algorithm(Collective::kAllreduce, bytes), planned);
    const auto refused =
        world.set_algorithm(Collective::kAllreduce, bytes, "hierarchical:layers=3");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
  });
}

// Goal: all ranks choose by rank 0's tuning file, over a real rendezvous and as threads.
TEST(Choices, TuningFileDecides) {
  const TuningFile file("farandole-tuning 1\nallreduce ranks=3 bytes<=65536 reduce_broadcast\n");
  for (const char* transport : {"shm", "tcp", "inproc"}) {
    Contexts contexts = make_ranks(3, transport);
    run_ranks(contexts, [](Context& context, Communicator& world) {
      EXPECT_EQ(world.algorithm(Collective::kAllreduce, Bytes{65536}), "reduce_broadcast");
      EXPECT_NE(world.algorithm(Collective::kAllreduce, Bytes{65537}), "reduce_broadcast");
      EXPECT_NE(plan_of_allreduce(context, world, 10).find("allreduce reduce_broadcast"),
                std::string::npos);
    });
  }
}

TEST(Choices, BadTuningFileIsAnError) {
  const TuningFile file("farandole-tuning 1\nallreduce ranks=3 nonsense\n");
  const auto made = Context::inproc(2, true, "inproc");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(made.error().message.find("line 2"), std::string::npos) << made.error().message;
}

// Goal: another machine changes choices, the same on all ranks. Method: links so slow that only
// bytes count, then so far that only steps do.
TEST(Choices, MachineDecides) {
  Contexts contexts = make_ranks(5, "tcp");
  run_ranks(contexts, [](Context&, Communicator& world) { EXPECT_EQ(world.size(), 5); });
  run_ranks(contexts, [](Context& context, Communicator& world) {
    Machine machine = usual_machine(5, 1, false);
    machine.hops[0].alpha = machine.hops[0].overhead = 1;
    ASSERT_TRUE(context.set_machine(machine));
    const std::string few_steps = world.algorithm(Collective::kBroadcast, Bytes{1 << 20});
    machine.hops[0].alpha = machine.hops[0].overhead = 1e-12;
    ASSERT_TRUE(context.set_machine(machine));
    const std::string few_bytes = world.algorithm(Collective::kBroadcast, Bytes{1 << 20});
    EXPECT_EQ(few_steps, "binomial");
    EXPECT_NE(few_bytes, few_steps);
  });
}

// Goal: ranks that give different machines learn who differs, and keep what they had.
// Method: every number of a hop in turn.
TEST(Choices, DifferentMachinesAreRefused) {
  Contexts contexts = make_ranks(3, "inproc");
  run_ranks(contexts, [](Context& context, Communicator& world) {
    const std::string before = world.algorithm(Collective::kAllreduce, Bytes{1 << 20});
    for (const auto number :
         {&HopCost::alpha, &HopCost::call, &HopCost::fill_chunks, &HopCost::overhead,
          &HopCost::crowding, &HopCost::efficiency, &HopCost::fan_efficiency}) {
      Machine machine = usual_machine(3, 1, true);
      machine.hops[0].*number = world.rank() == Rank{1} ? 0.5 : 0.25;
      const auto refused = context.set_machine(machine);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::kMismatch);
      EXPECT_NE(refused.error().message.find("rank 1 "), std::string::npos)
          << refused.error().message;
    }
    EXPECT_EQ(world.algorithm(Collective::kAllreduce, Bytes{1 << 20}), before);
  });
}

}  // namespace
}  // namespace farandole::testing
