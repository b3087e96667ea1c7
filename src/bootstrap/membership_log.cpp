// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/membership_log.hpp"

#include <algorithm>
#include <utility>

namespace farandole {

std::string encode(const Departure& departure) {
  Writer writer;
  writer.i32(departure.rank.value()).flag(departure.clean);
  writer.text(departure.reason).text(departure.state);
  return encode_frame(static_cast<std::uint8_t>(ControlFrame::kDeparture), writer.bytes());
}

std::optional<Departure> decode_departure(std::string_view payload) {
  Reader reader(payload);
  Departure departure;
  departure.rank = Rank{reader.rank()};
  departure.clean = reader.flag();
  departure.reason = reader.text();
  departure.state = reader.text();
  if (!reader.complete()) return std::nullopt;
  return departure;
}

std::string encode(const Notice& notice) {
  Writer writer;
  writer.i32(notice.from).u64(notice.number).text(notice.message);
  return encode_frame(static_cast<std::uint8_t>(ControlFrame::kNotice), writer.bytes());
}

std::optional<Notice> decode_notice(std::string_view payload) {
  Reader reader(payload);
  Notice notice;
  notice.from = reader.rank();
  notice.number = reader.u64();
  notice.message = reader.text();
  if (!reader.complete()) return std::nullopt;
  return notice;
}

std::optional<std::string> MembershipLog::add(const Departure& departure) {
  const int rank = departure.rank.value();
  if (!known(rank) || gone_[static_cast<std::size_t>(rank)]) return std::nullopt;
  departures_[static_cast<std::size_t>(rank)] = departure;
  gone_[static_cast<std::size_t>(rank)] = true;
  ++gone_count_;
  items_.push_back({encode(departure)});
  return items_.back().frame;
}

std::optional<std::string> MembershipLog::add(const Notice& notice) {
  if (!known(notice.from)) return std::nullopt;
  std::uint64_t& last = numbers_[static_cast<std::size_t>(notice.from)];
  if (notice.number <= last) return std::nullopt;
  last = notice.number;
  std::string frame = encode(notice);
  items_.push_back({frame, true});
  ++notices_;
  notice_bytes_ += frame.size();
  forget_old_notices();
  return frame;
}

std::optional<std::string> MembershipLog::add_start() {
  if (std::exchange(started_, true)) return std::nullopt;
  items_.push_back({encode_frame(static_cast<std::uint8_t>(ControlFrame::kStarted), "")});
  return items_.back().frame;
}

void MembershipLog::forget_old_notices() {
  auto item = items_.begin();
  while (notices_ > kNoticesKept || (notices_ > 1 && notice_bytes_ > kNoticeBytesKept)) {
    item = std::find_if(item, items_.end(), [](const Item& one) { return one.notice; });
    --notices_;
    notice_bytes_ -= item->frame.size();
    item = items_.erase(item);
  }
}

std::string MembershipLog::replay() const {
  std::string frames;
  for (const Item& item : items_) frames += item.frame;
  return frames;
}

}  // namespace farandole
