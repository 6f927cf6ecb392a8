//! Operators on values.

use super::Context;
use crate::model::error::Result;
use crate::sql::ast::{BinaryOp, UnaryOp};
use crate::sql::compare::{compare_same_type, equal};
use crate::sql::number;
use serde_json::Value;

pub fn is_comparison(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Equal
            | BinaryOp::NotEqual
            | BinaryOp::Less
            | BinaryOp::LessOrEqual
            | BinaryOp::Greater
            | BinaryOp::GreaterOrEqual
    )
}

/// Undefined if a side is undefined; for an order also if the types differ.
pub fn compare(op: BinaryOp, left: Option<&Value>, right: Option<&Value>) -> Option<bool> {
    let (left, right) = (left?, right?);
    match op {
        BinaryOp::Equal => Some(equal(left, right)),
        BinaryOp::NotEqual => Some(!equal(left, right)),
        _ => {
            let ordering = compare_same_type(left, right)?;
            Some(match op {
                BinaryOp::Less => ordering.is_lt(),
                BinaryOp::LessOrEqual => ordering.is_le(),
                BinaryOp::Greater => ordering.is_gt(),
                _ => ordering.is_ge(),
            })
        }
    }
}

pub fn unary(op: UnaryOp, operand: Option<&Value>) -> Option<Value> {
    let Some(Value::Number(operand)) = operand else {
        return None;
    };
    let operand = number::to_f64(operand);
    match op {
        UnaryOp::Minus => number::value(-operand),
        UnaryOp::Plus => number::value(operand),
        UnaryOp::BitNot => Some(Value::from(!number::to_i32_bits(operand))),
        UnaryOp::Not => None,
    }
}

pub fn binary(
    op: BinaryOp,
    left: &Value,
    right: &Value,
    context: &Context,
) -> Result<Option<Value>> {
    match (left, right) {
        (Value::String(left), Value::String(right)) if op == BinaryOp::Concat => {
            context.charge_bytes(left.len().saturating_add(right.len()))?;
            Ok(Some(Value::String(
                [left.as_str(), right.as_str()].concat(),
            )))
        }
        (Value::Number(left), Value::Number(right)) => {
            Ok(arithmetic(op, number::to_f64(left), number::to_f64(right)))
        }
        _ => Ok(None),
    }
}

fn arithmetic(op: BinaryOp, left: f64, right: f64) -> Option<Value> {
    let bits = number::to_i32_bits;
    #[expect(clippy::cast_sign_loss, reason = "the bits are what is wanted")]
    let (unsigned, shift) = (bits(left) as u32, bits(right) as u32 & 31);
    let result = match op {
        BinaryOp::Add => left + right,
        BinaryOp::Subtract => left - right,
        BinaryOp::Multiply => left * right,
        BinaryOp::Divide => left / right,
        BinaryOp::Modulo => left % right,
        BinaryOp::BitAnd => f64::from(bits(left) & bits(right)),
        BinaryOp::BitOr => f64::from(bits(left) | bits(right)),
        BinaryOp::BitXor => f64::from(bits(left) ^ bits(right)),
        BinaryOp::ShiftLeft => f64::from(bits(left).wrapping_shl(shift)),
        BinaryOp::ShiftRight => f64::from(bits(left).wrapping_shr(shift)),
        BinaryOp::ShiftRightZeroFill => f64::from(unsigned.wrapping_shr(shift)),
        _ => return None,
    };
    number::value(result)
}
