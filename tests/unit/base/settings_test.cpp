// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace farandole {
namespace {

// An environment variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

double number(const char* name, const char* value) {
  const Variable set(name, value);
  auto result = number_setting(name);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : -1;
}

// The message of a refused value, which must name the variable and the value.
std::string refusal(const char* name, const char* value) {
  const Variable set(name, value);
  auto result = number_setting(name);
  if (result) return "accepted " + std::to_string(*result);
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(result.error().message.find(name), std::string::npos);
  EXPECT_NE(result.error().message.find("'" + std::string(value) + "'"), std::string::npos);
  return "refused";
}

// Goal: a variable that begins as ours and is none is named, with the nearest that is; ours, tests'
// and others' are not. Method: one of each kind.
TEST(Settings, UnknownOnesAreNamedWithTheNearest) {
  const Variable right("FARANDOLE_TIMEOUT", "7"), of_a_test("FARANDOLE_TEST_SEED", "1");
  const Variable others("FARANDOL_TIMEOUT", "7");
  EXPECT_TRUE(unknown_settings().empty());
  const Variable typo("FARANDOLE_TIMOUT", "7"), far("FARANDOLE_X", "");
  const std::vector<std::string> found = unknown_settings();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].starts_with("FARANDOLE_TIMOUT is no setting")) << found[0];
  EXPECT_NE(found[0].find("nearest is FARANDOLE_TIMEOUT,"), std::string::npos) << found[0];
  EXPECT_TRUE(found[1].starts_with("FARANDOLE_X is no setting")) << found[1];
}

// Goal: without a variable, or with an empty one, the default of the table holds.
// Method: read every setting that has a default, with a clean environment.
TEST(Settings, DefaultsAreValid) {
  std::set<std::string_view> names;
  for (const Setting& setting : settings()) {
    unsetenv(std::string(setting.name).c_str());
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name << " is declared twice";
    EXPECT_TRUE(setting.name.starts_with("FARANDOLE_")) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    if (setting.default_value.empty()) continue;
    if (setting.type == Setting::Type::kText) {
      EXPECT_EQ(*text_setting(setting.name), setting.default_value);
    } else if (setting.type == Setting::Type::kFlag) {
      EXPECT_TRUE(flag_setting(setting.name)) << setting.name;
    } else {
      EXPECT_TRUE(number_setting(setting.name)) << setting.name;
    }
  }
  EXPECT_EQ(number("FARANDOLE_TIMEOUT", ""), 30);
}

// Goal: numbers and bytes are read as people write them. Method: values worked out by hand.
TEST(Settings, ReadsNumbersAndBytes) {
  EXPECT_EQ(number("FARANDOLE_TIMEOUT", "2.5"), 2.5);
  EXPECT_EQ(number("FARANDOLE_SPIN", "-1"), -1);
  EXPECT_EQ(number("FARANDOLE_TCP_CONNECTIONS", "16"), 16);
  EXPECT_EQ(number("FARANDOLE_MEMORY", "1048576"), 1048576);
  EXPECT_EQ(number("FARANDOLE_MEMORY", "3GiB"), 3.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(number("FARANDOLE_MEMORY", "3GB"), 3e9);
  EXPECT_EQ(number("FARANDOLE_MEMORY", "1.5MiB"), 1.5 * 1024 * 1024);
}

// Goal: a value that makes no sense is refused in words. Method: one case per way to be wrong.
TEST(Settings, RefusesWhatMakesNoSense) {
  EXPECT_EQ(refusal("FARANDOLE_TIMEOUT", "soon"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TIMEOUT", "30s"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TIMEOUT", "0"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TIMEOUT", "nan"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TIMEOUT", "1e300"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TCP_CONNECTIONS", "2.5"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TCP_CONNECTIONS", "17"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_TCP_CONNECTIONS", "-1"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_MEMORY", "3 GiB"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_MEMORY", "3gib"), "refused");
  EXPECT_EQ(refusal("FARANDOLE_MEMORY", "1KiB"), "refused");
}

// Goal: flags take the words that people use, in any case. Method: all of them, and some others.
TEST(Settings, ReadsFlags) {
  for (const char* word : {"1", "true", "YES", "On"}) {
    const Variable set("FARANDOLE_CHECK", word);
    EXPECT_TRUE(*flag_setting("FARANDOLE_CHECK")) << word;
  }
  for (const char* word : {"0", "False", "no", "OFF", ""}) {
    const Variable set("FARANDOLE_CHECK", word);
    EXPECT_FALSE(*flag_setting("FARANDOLE_CHECK")) << word;
  }
  for (const char* word : {"2", "maybe", "tru"}) {
    const Variable set("FARANDOLE_CHECK", word);
    EXPECT_EQ(flag_setting("FARANDOLE_CHECK").error().kind, ErrorKind::kInvalidArgument) << word;
  }
}

// Goal: reading a variable that the table lacks is our bug, not the user's. Method: read one.
TEST(Settings, UnknownNameIsInternal) {
  EXPECT_EQ(text_setting("FARANDOLE_NOTHING").error().kind, ErrorKind::kInternal);
}

}  // namespace
}  // namespace farandole
