(* What is left out: what truncation by order leaves, and a bound of it. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths Counts Orders.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Remainder.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Implicit Types (h : head) (X : 'M[R]_(n, d)) (layers : seq (seq head)).

(* The sum, over the heads h of all layers and the paths q of order k above h, of q (h (the stream that h reads)). *)
Fixpoint remainder k layers X : 'M[R]_(n, d) :=
  if layers is heads :: rest
  then \sum_(h <- heads) \sum_(q <- paths rest | size q == k) act (virtual_head (h :: q)) X
       + remainder k rest (layer heads X)
  else 0.

(* It is the sum of the terms of order above k: the first head of such a path that has k heads above it reads the stream,
   which is the sum over all that may stand before it. *)
Theorem remainder_is_sum k layers X :
  remainder k layers X = \sum_(p <- paths layers | (k < size p)%N) act (virtual_head p) X.
Proof.
elim: layers X => [|heads rest IH] X /=; first by rewrite big_cons big_nil.
rewrite IH big_cat /= addrC [X in _ = _ + X]big_mkcond big_allpairs_dep /=.
rewrite [X in X + _ = _](_ : _ = \sum_(q <- paths rest | (k < size q)%N) act (virtual_head q) X
   + \sum_(h <- heads) \sum_(q <- paths rest | (k < size q)%N) act (virtual_head (h :: q)) X); last first.
  rewrite [X in _ = _ + X]exchange_big -big_split /=; apply: eq_bigr => q _.
  by rewrite /layer actD act_sum; congr (_ + _); apply: eq_bigr => h _; rewrite act_after.
rewrite -addrA; congr (_ + _); rewrite -big_split /=; apply: eq_bigr => h _.
rewrite [X in X + _]big_mkcond [X in _ + X]big_mkcond -big_split /=; apply: eq_bigr => q _.
by rewrite ltnS; case: (ltngtP k (size q)); rewrite ?addr0 ?add0r.
Qed.

(* Run k of the term-importance algorithm, and what it leaves, are the stream. *)
Theorem truncation_and_remainder k layers X :
  stream layers X = rerun layers (fun _ => X) k + remainder k layers X.
Proof.
rewrite stream_is_sum_over_paths term_importance_truncates remainder_is_sum (bigID (fun p => (size p <= k)%N)) /=.
by congr (_ + _); apply: eq_bigl => p; rewrite ltnNge.
Qed.

End Remainder.

(* The elementary symmetric polynomial of any numbers; of head counts it is `elementary`. *)
Fixpoint weighted (K : ringType) k (Cs : seq K) : K :=
  match k, Cs with
  | 0, _ => 1
  | _.+1, [::] => 0
  | k'.+1, C :: rest => weighted k rest + C * weighted k' rest
  end.

Section Bounds.

Variable R : comRingType.
Variables n d : nat.
Local Notation head := (head R n d).
Implicit Types (X Y : 'M[R]_(n, d)) (layers : seq (seq head)) (p : seq head).

(* What the heads of a path weigh, multiplied along it and summed over the paths of an order. *)
Theorem weights_of_order (K : ringType) (c : head -> K) k layers :
  \sum_(p <- paths layers | size p == k) \prod_(h <- p) c h
  = weighted k [seq \sum_(h <- heads) c h | heads <- layers].
Proof.
elim: layers k => [|heads rest IH] k /=.
  by rewrite big_cons !big_nil; case: k => [|k] //=; rewrite addr0.
rewrite big_cat /= IH big_mkcond big_allpairs_dep /=.
case: k => [|k] /=.
  rewrite [X in _ + X]big1 ?addr0 => [|h _]; last by rewrite big1.
  by case: (map _ _).
congr (_ + _); rewrite -IH mulr_suml; apply: eq_bigr => h _.
by rewrite mulr_sumr [RHS]big_mkcond; apply: eq_bigr => p _; rewrite eqSS; case: eqP => // _; rewrite big_cons.
Qed.

(* Any size of streams for which no sum is larger than the sum of the sizes, and what a head can do to it. *)
Variable K : numDomainType.
Variable N : 'M[R]_(n, d) -> K.
Hypothesis N_zero : N 0 = 0.
Hypothesis N_positive : forall X, 0 <= N X.
Hypothesis N_adds : forall X Y, N (X + Y) <= N X + N Y.
Variable c : head -> K.
Hypothesis c_positive : forall h, 0 <= c h.
Hypothesis c_bounds : forall h X, N (act h X) <= c h * N X.

Lemma path_bound p X : N (act (virtual_head p) X) <= (\prod_(h <- p) c h) * N X.
Proof.
elim: p X => [|h p IH] X /=; first by rewrite identity_head_acts big_nil mul1r.
rewrite -act_after big_cons; apply: le_trans (IH _) _; rewrite [c h * _]mulrC -mulrA.
by apply: ler_wpmul2l => //; apply: prodr_ge0.
Qed.

Lemma sum_bound I (r : seq I) (P : pred I) (F : I -> 'M[R]_(n, d)) :
  N (\sum_(i <- r | P i) F i) <= \sum_(i <- r | P i) N (F i).
Proof.
elim: r => [|i r IH]; first by rewrite !big_nil N_zero.
by rewrite !big_cons; case: (P i) => //; apply: le_trans (N_adds _ _) _; rewrite ler_add2l.
Qed.

(* What truncation leaves is at most the sum of e_j(C_1, ..., C_L) for j > k, with C_l the sum of c over the heads of
   layer l, times the size of what enters: no path is listed for it. *)
Theorem truncation_bound k layers X :
  N (stream layers X - rerun layers (fun _ => X) k)
  <= (\sum_(k.+1 <= j < (size layers).+1) weighted j [seq \sum_(h <- heads) c h | heads <- layers]) * N X.
Proof.
rewrite (truncation_and_remainder k) addrC addKr remainder_is_sum.
apply: le_trans (sum_bound _ _ _) _; apply: le_trans (ler_sum _ (fun p _ => path_bound p X)) _.
rewrite -mulr_suml ler_wpmul2r //.
have pick m (v : K) a b : \sum_(a <= j < b | m == j) v = if (a <= m < b)%N then v else 0.
  case: ifP => ab.
    rewrite big_mkcond (bigD1_seq m) ?mem_index_iota ?iota_uniq //= eqxx big1 ?addr0 // => j.
    by rewrite eq_sym => /negPf ->.
  by rewrite big_nat_cond big_pred0 // => j; apply/negP => /andP [jab /eqP mj]; rewrite mj jab in ab.
under [X in _ <= X]eq_bigr do rewrite -weights_of_order.
rewrite (exchange_big_dep predT) //= [X in X <= _]big_mkcond le_eqVlt; apply/orP; left; apply/eqP.
apply: eq_big_seq => p /(allP (order_at_most_depth layers)) deep.
by rewrite pick ltnS deep andbT.
Qed.

End Bounds.

(* One such size: the largest entry.  A pattern whose entries are positive and whose rows sum to one does not enlarge it,
   and so a head enlarges it at most by the largest sum of absolute values of a row of its W_OV. *)
Section LargestEntry.

Variable K : realDomainType.
Variables n d : nat.
Implicit Types (X Y : 'M[K]_(n, d)).

Definition at_most (b : K) X := forall i j, `|X i j| <= b.
Definition averages (A : 'M[K]_n) := (forall i j, 0 <= A i j) /\ (forall i, \sum_j A i j = 1).
Definition row_sums_at_most (c : K) (W : 'M[K]_d) := forall i, \sum_j `|W i j| <= c.

Theorem head_bound (h : head K n d) (b c : K) X :
  0 <= b -> averages h.1 -> row_sums_at_most c h.2 -> at_most b X -> at_most (c * b) (act h X).
Proof.
move=> b0 [A0 A1] Wc Xb i j; rewrite /act mxE.
have AX k : `|(h.1 *m X) i k| <= b.
  rewrite mxE; apply: le_trans (ler_norm_sum _ _ _) _.
  apply: (@le_trans _ _ (\sum_l h.1 i l * b)); last by rewrite -mulr_suml A1 mul1r.
  by apply: ler_sum => l _; rewrite normrM ger0_norm //; apply: ler_wpmul2l.
apply: le_trans (ler_norm_sum _ _ _) _.
apply: (@le_trans _ _ (\sum_k `|h.2 j k| * b)); last by rewrite -mulr_suml; apply: ler_wpmul2r.
by apply: ler_sum => k _; rewrite normrM [(_^T) _ _]mxE mulrC; apply: ler_wpmul2l.
Qed.

(* Along a path the numbers of its heads are multiplied. *)
Theorem largest_entry_of_a_path (p : seq (head K n d)) (c : head K n d -> K) (b : K) X :
  0 <= b -> {in p, forall h, [/\ averages h.1, row_sums_at_most (c h) h.2 & 0 <= c h]} -> at_most b X ->
  at_most ((\prod_(h <- p) c h) * b) (act (virtual_head p) X).
Proof.
move=> b0; elim: p b b0 X => [|h p IH] b b0 X heads Xb /=.
  by rewrite identity_head_acts big_nil mul1r.
rewrite -act_after big_cons [c h * _]mulrC -mulrA; have [Ah Wh ch] := heads h (mem_head _ _).
apply: (IH (c h * b)); [exact: mulr_ge0 | | exact: head_bound].
by move=> q q_in; apply: heads; rewrite inE q_in orbT.
Qed.

End LargestEntry.
