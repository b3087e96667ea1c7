// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/slurm.hpp"

#include <charconv>

namespace farandole {
namespace {

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, failure] = std::from_chars(text.data(), last, value);
  if (failure != std::errc() || end != last) return std::nullopt;
  return value;
}

/// Cuts at commas outside brackets.
std::optional<std::vector<std::string_view>> cut(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if ((c == '[' && inside) || (c == ']' && !inside)) return std::nullopt;
    if (c == '[' || c == ']') inside = c == '[';
    if (c != ',' || (inside && i < list.size())) continue;
    if (i == start) return std::nullopt;
    parts.push_back(list.substr(start, i - start));
    start = i + 1;
  }
  if (inside) return std::nullopt;
  return parts;
}

/// "3" or "03-05", the digits padded to the width of the first number.
bool append_range(std::string_view range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.find('-');
  const std::string_view low_text = range.substr(0, dash);
  const auto low = number(low_text);
  const auto high = dash == std::string_view::npos ? low : number(range.substr(dash + 1));
  if (!low || !high || *high < *low || *high - *low >= kSlurmHostsMax - numbers.size()) {
    return false;
  }
  for (std::size_t value = *low; value <= *high; ++value) {
    std::string digits = std::to_string(value);
    if (digits.size() < low_text.size()) digits.insert(0, low_text.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return true;
}

/// Appends to each of `names` each number of "03-05,9".
bool multiply(std::vector<std::string>& names, std::string_view ranges) {
  std::vector<std::string> numbers;
  const auto parts = cut(ranges);
  if (!parts) return false;
  for (const std::string_view part : *parts) {
    if (!append_range(part, numbers)) return false;
  }
  if (names.size() > kSlurmHostsMax / numbers.size()) return false;
  std::vector<std::string> products;
  for (const std::string& name : names) {
    for (const std::string& digits : numbers) products.push_back(name + digits);
  }
  names = std::move(products);
  return true;
}

bool append_hosts(std::string_view part, std::vector<std::string>& hosts) {
  std::vector<std::string> names = {""};
  while (!part.empty()) {
    const std::size_t open = part.find('[');
    for (std::string& name : names) name += part.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = part.find(']', open);
    if (!multiply(names, part.substr(open + 1, close - open - 1))) return false;
    part.remove_prefix(close + 1);
  }
  if (hosts.size() + names.size() > kSlurmHostsMax) return false;
  hosts.insert(hosts.end(), names.begin(), names.end());
  return true;
}

}  // namespace

std::optional<std::vector<std::string>> expand_node_list(std::string_view list) {
  const auto parts = cut(list);
  if (!parts) return std::nullopt;
  std::vector<std::string> hosts;
  for (const std::string_view part : *parts) {
    if (!append_hosts(part, hosts)) return std::nullopt;
  }
  return hosts;
}

std::optional<std::vector<int>> expand_task_counts(std::string_view list) {
  const auto parts = cut(list);
  if (!parts) return std::nullopt;
  std::vector<int> counts;
  for (const std::string_view part : *parts) {
    const std::size_t open = part.find("(x");
    const auto tasks = number(part.substr(0, open));
    std::optional<std::size_t> times = 1;
    if (open != std::string_view::npos) {
      if (part.back() != ')') return std::nullopt;
      times = number(part.substr(open + 2, part.size() - open - 3));
    }
    if (!tasks || !times || *tasks > kSlurmHostsMax) return std::nullopt;
    if (*times > kSlurmHostsMax - counts.size()) return std::nullopt;
    counts.insert(counts.end(), *times, static_cast<int>(*tasks));
  }
  return counts;
}

}  // namespace farandole
