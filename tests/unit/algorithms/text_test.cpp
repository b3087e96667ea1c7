// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "unit/algorithms/all_schedules.hpp"
#include "unit/schedule/same_schedule.hpp"

namespace farandole {
namespace {

// Goal: every algorithm's schedule survives the way through its text unchanged.
TEST(AlgorithmText, RoundTripsForEveryAlgorithm) {
  for (const std::int64_t p : {1, 2, 3, 4, 7, 8, 12, 33, 64}) {
    for (const Schedule& schedule : all_schedules(p)) {
      const Result<Schedule> back = parse_schedule(to_text(schedule));
      ASSERT_TRUE(back) << described(schedule) << ": " << back.error().message;
      EXPECT_TRUE(same_schedule(*back, schedule)) << described(schedule);
    }
  }
}

// Goal: the example in the format's document is what the library writes.
TEST(AlgorithmText, TheDocumentShowsTheRingAllgather) {
  const auto here = std::filesystem::path(__FILE__).parent_path();
  std::ifstream document(here / "../../../docs/formats/schedule.md");
  ASSERT_TRUE(document) << "no document beside " << here;
  std::ostringstream text;
  text << document.rdbuf();
  const Schedule schedule = built(Collective::kAllgather, "ring", 4);
  EXPECT_NE(text.str().find("```\n" + to_text(schedule) + "```\n"), std::string::npos);
}

}  // namespace
}  // namespace farandole
