// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace farandole {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Ancestor {
  int pid = 0, parent = 0;
  std::string start_time;
};

/// From /proc/<pid>/stat, whose second field, the name in brackets, may contain anything.
Ancestor look_at(int pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  Ancestor ancestor;
  ancestor.pid = pid;
  std::string state;
  fields >> state >> ancestor.parent;
  constexpr int kStartTimeField = 22;
  for (int field = 5; field <= kStartTimeField; ++field) fields >> ancestor.start_time;
  return ancestor;
}

bool has_variable(int pid, const std::string& name) {
  const std::string environment = contents("/proc/" + std::to_string(pid) + "/environ");
  const std::string assignment = name + "=";
  return environment.starts_with(assignment) ||
         environment.find(std::string(1, '\0') + assignment) != std::string::npos;
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::string> first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = variable(name)) return value;
  }
  return std::nullopt;
}

Result<int> integer_variable(const char* name, int low, int high, std::optional<int> fallback) {
  const auto value = variable(name);
  const std::string allowed =
      "allowed is a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ".";
  if (!value) {
    if (fallback) return *fallback;
    return Error{ErrorKind::kInvalidArgument, std::string(name) + " is not set, " + allowed};
  }
  int number = 0;
  const char* const last = value->data() + value->size();
  const auto [end, failure] = std::from_chars(value->data(), last, number);
  if (failure != std::errc() || end != last || number < low || number > high) {
    return Error{ErrorKind::kInvalidArgument,
                 std::string(name) + " is '" + *value + "', " + allowed};
  }
  return number;
}

std::string launcher_identity(const char* variable) {
  Ancestor ancestor = look_at(getppid());
  while (ancestor.parent > 1 && has_variable(ancestor.pid, variable)) {
    ancestor = look_at(ancestor.parent);
  }
  return std::to_string(ancestor.pid) + " since " + ancestor.start_time;
}

}  // namespace farandole
