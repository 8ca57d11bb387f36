(* Which terms?  With the patterns held fixed, the terms are determined by what the model does when only some of its
   heads are kept: each term is an alternating sum of such runs, and no other family of matrices adds up to all runs.

   The argument is Moebius inversion.  The run that keeps the heads of S is the sum of the terms of the paths all of
   whose heads are in S.  So in the alternating sum over the sets S of heads of p, the term of a path q is counted
   with the signs of all sets between q and p.  These cancel in pairs (take a head of p that q does not take: with it
   and without it) unless q takes all the heads of p; and a path is known by the set of its heads. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

(* Heads are called by labels, each label once: two heads may be the same matrices, and are still two heads. *)
Section Labels.

Variable T : eqType.

Implicit Types (layers : seq (seq T)) (p q : seq T) (S : pred T).

(* The layers with the heads of S alone. *)
Definition keep S layers := [seq [seq h <- heads | S h] | heads <- layers].

(* The paths of the heads kept are the paths that take only heads kept. *)
Lemma paths_of_kept S layers : paths (keep S layers) = [seq p <- paths layers | all S p].
Proof.
elim: layers => [|heads rest IH] //=.
rewrite IH filter_cat; congr (_ ++ _); move: (paths rest) => r.
elim: heads => [|h heads IHh] //=; rewrite filter_cat -IHh filter_map.
have -> : [seq p <- r | preim (cons h) (all S) p] = if S h then [seq p <- r | all S p] else [::].
  by elim: r {IHh} => [|p r /= ->] /=; case: (S h).
by case: (S h).
Qed.

Lemma path_in_order layers p : p \in paths layers -> subseq p (flatten layers).
Proof.
elim: layers p => [|heads rest IH] p /=; first by rewrite inE => /eqP ->.
rewrite mem_cat => /orP [/IH | /allpairsP [[h q] /= [h_in /IH q_in ->]]].
  by move=> sub; apply: subseq_trans sub (suffix_subseq _ _).
by rewrite -cat1s cat_subseq // sub1seq.
Qed.

(* With each label once, a path is the set of its heads ... *)
Lemma path_is_its_set layers p q :
  uniq (flatten layers) -> p \in paths layers -> q \in paths layers -> p =i q -> p = q.
Proof.
move=> U /path_in_order /(subseq_uniqP U) -> /path_in_order /(subseq_uniqP U) -> same.
by apply: eq_in_filter => h h_in; move: (same h); rewrite !mem_filter h_in !andbT.
Qed.

Lemma path_uniq layers p : uniq (flatten layers) -> p \in paths layers -> uniq p.
Proof. by move=> U /path_in_order sub; apply: subseq_uniq sub U. Qed.

(* ... and no path is listed twice. *)
Theorem paths_are_distinct layers : uniq (flatten layers) -> uniq (paths layers).
Proof.
elim: layers => [|heads rest IH] //=; rewrite cat_uniq => /and3P [U1 disj U2].
rewrite cat_uniq IH //= allpairs_uniq ?IH //; last by move=> [a b] [c e] _ _ /= [-> ->].
rewrite andbT; apply: contra disj => /hasP [p /allpairsP [[h q] /= [h_in _ ->]] /path_in_order sub].
by apply/hasP; exists h => //; apply: (mem_subseq sub); rewrite inE eqxx.
Qed.

End Labels.

(* Sums of signs over the sets between two sets cancel unless the two sets are one. *)
Lemma alternating_sum (T : finType) (R : ringType) (P Q : {set T}) :
  \sum_(S : {set T} | (Q \subset S) && (S \subset P)) (-1) ^+ #|P :\: S| = (Q == P)%:R :> R.
Proof.
case: eqP => [-> | /eqP Q_P].
  by rewrite (big_pred1 P) ?setDv ?cards0 // => S; rewrite /= eqEsubset andbC.
case: (boolP (Q \subset P)) => [sub | nsub]; last first.
  by rewrite big_pred0 // => S; apply: contraNF nsub => /andP [/subset_trans]; apply.
have /properP [_ [x xP xQ]] : Q \proper P by rewrite properEneq Q_P.
rewrite (bigID (fun S : {set T} => x \in S)) /=.
rewrite (reindex_onto (fun S : {set T} => x |: S) (fun S => S :\ x)) /=; last first.
  by move=> S /andP [_ /setD1K].
apply/eqP; rewrite addr_eq0 -sumrN; apply/eqP.
apply: eq_big => S; last first.
  case/andP => /andP [_]; rewrite setU11 => _ /eqP same.
  have xS : x \notin S by rewrite -same setD11.
  rewrite (cardsD1 x (P :\: S)) inE xS xP /= exprS mulN1r opprK.
  by rewrite setDDl setUC.
rewrite setU11 andbT subUset sub1set xP /=; case: (boolP (x \in S)) => xS; last first.
  by rewrite setU1K // eqxx !andbT -[in X in _ = X && _](setU1K xS) subsetD1 xQ andbT.
by rewrite andbF; apply: contraTF xS => /andP [_ /eqP <-]; rewrite setD11.
Qed.

(* Any family on paths, with values wherever there are sums and multiples. *)
Section Inversion.

Variables (R : ringType) (V : lmodType R) (T : finType) (layers : seq (seq T)).
Hypothesis once : uniq (flatten layers).

Implicit Types (t : seq T -> V) (p q : seq T) (P : {set T}).

(* The alternating sum over the parts of P finds the paths that take exactly the heads of P. *)
Lemma inversion t P :
  \sum_(S : {set T} | S \subset P) (-1) ^+ #|P :\: S| *: (\sum_(p <- paths layers | all (mem S) p) t p)
  = \sum_(p <- paths layers | [set h in p] == P) t p.
Proof.
transitivity (\sum_(S : {set T} | S \subset P) \sum_(p <- paths layers)
                if all (mem S) p then (-1) ^+ #|P :\: S| *: t p else 0).
  by apply: eq_bigr => S _; rewrite scaler_sumr big_mkcond.
rewrite exchange_big [RHS]big_mkcond /=; apply: eq_bigr => p _.
rewrite -big_mkcondr /= -scaler_suml.
rewrite (eq_bigl (fun S : {set T} => ([set h in p] \subset S) && (S \subset P))); last first.
  move=> S; rewrite andbC; congr (_ && _).
  by apply/allP/subsetP => sub h; [rewrite inE => /sub | move=> h_in; apply: sub; rewrite inE].
by rewrite alternating_sum; case: eqP; rewrite ?scale1r ?scale0r.
Qed.

(* For the heads of a path that is this path alone. *)
Lemma inversion_at t p :
  p \in paths layers ->
  \sum_(S : {set T} | S \subset p) (-1) ^+ (size p - #|S|) *: (\sum_(q <- paths layers | all (mem S) q) t q) = t p.
Proof.
move=> p_in; transitivity (\sum_(q <- paths layers | [set h in q] == [set h in p]) t q); last first.
  rewrite -big_filter (_ : [seq q <- _ | _] = [:: p]) ?big_seq1 //.
  rewrite -(filter_pred1_uniq (paths_are_distinct once) p_in); apply: eq_in_filter => q q_in.
  apply/eqP/eqP => [/setP same | -> //]; apply: (path_is_its_set once) => // h.
  by move: (same h); rewrite !inE.
rewrite -inversion; apply: eq_big => S; first by apply/esym/eq_subset_r => h; rewrite inE.
move=> sub; congr ((-1) ^+ _ *: _); rewrite cardsD.
have /setIidPr -> : S \subset [set h in p].
  by apply/subsetP => h /(subsetP sub); rewrite inE.
by rewrite cardsE (card_uniqP (path_uniq once p_in)).
Qed.

End Inversion.

Section Terms.

Variable R : comRingType.
Variables n d : nat.
Variable T : finType.               (* the labels of the heads *)
Variable head_of : T -> head R n d.
Variable layers : seq (seq T).
Hypothesis once : uniq (flatten layers).

Implicit Types (X : 'M[R]_(n, d)) (p q : seq T) (P S : {set T}).

(* The term of a path of labels. *)
Definition term p X : 'M[R]_(n, d) := act (virtual_head (map head_of p)) X.

(* The run that keeps the heads of S, all patterns as they were. *)
Definition run S X : 'M[R]_(n, d) := stream [seq map head_of heads | heads <- keep (mem S) layers] X.

Lemma paths_of_labels (L : seq (seq T)) : paths [seq map head_of heads | heads <- L] = map (map head_of) (paths L).
Proof.
elim: L => [|heads rest IH] //=; rewrite map_cat IH; congr (_ ++ _).
by elim: heads => //= h heads ->; rewrite map_cat -!map_comp.
Qed.

(* A run is the sum of the terms of the paths whose heads are all kept ... *)
Theorem run_is_sum_of_its_terms S X : run S X = \sum_(p <- paths layers | all (mem S) p) term p X.
Proof. by rewrite /run stream_is_sum_over_paths paths_of_labels big_map paths_of_kept big_filter. Qed.

(* ... and the run that keeps all heads is the model. *)
Lemma run_of_all_heads X : run setT X = stream [seq map head_of heads | heads <- layers] X.
Proof.
rewrite /run /keep; congr stream; congr map; rewrite -[RHS]map_id; apply: eq_map => heads.
by apply/all_filterP/allP => h _; rewrite /= inE.
Qed.

(* So the term of a path is what the runs say that keep some of its heads alone. *)
Theorem term_is_alternating_sum p X :
  p \in paths layers ->
  term p X = \sum_(S : {set T} | S \subset p) (-1) ^+ (size p - #|S|) *: run S X.
Proof.
move=> p_in; rewrite -(inversion_at once (fun q => term q X) p_in).
by apply: eq_bigr => S _; rewrite run_is_sum_of_its_terms.
Qed.

(* Heads that are not the heads of a path (two of one layer) have no term: their alternating sum is zero. *)
Theorem no_term_without_path P X :
  (forall p, p \in paths layers -> [set h in p] != P) ->
  \sum_(S : {set T} | S \subset P) (-1) ^+ #|P :\: S| *: run S X = 0.
Proof.
move=> none; transitivity (\sum_(p <- paths layers | [set h in p] == P) term p X).
  by rewrite -inversion; apply: eq_bigr => S _; rewrite run_is_sum_of_its_terms.
by rewrite big_seq_cond big_pred0 // => p; apply/negP => /andP [/none /negPf ->].
Qed.

(* Whatever adds up to all runs is the terms. *)
Theorem terms_are_unique X (t : seq T -> 'M[R]_(n, d)) :
  (forall S, \sum_(p <- paths layers | all (mem S) p) t p = run S X) ->
  {in paths layers, forall p, t p = term p X}.
Proof.
move=> sums p p_in; rewrite -(inversion_at once t p_in) (term_is_alternating_sum X p_in).
by apply: eq_bigr => S _; rewrite sums.
Qed.

(* The same for the logits. *)
Section Logits.

Variables (v_in v_out : nat) (t : 'M[R]_(n, v_in)) (W_E : 'M[R]_(d, v_in)) (W_U : 'M[R]_(v_out, d)).

Definition logit_term p : 'M[R]_(n, v_out) :=
  (virtual_head (map head_of p)).1 *m t *m (W_U *m (virtual_head (map head_of p)).2 *m W_E)^T.
Definition logit_run S : 'M[R]_(n, v_out) := run S (t *m W_E^T) *m W_U^T.

Lemma logit_run_is_sum_of_its_terms S : logit_run S = \sum_(p <- paths layers | all (mem S) p) logit_term p.
Proof.
rewrite /logit_run run_is_sum_of_its_terms mulmx_suml; apply: eq_bigr => p _.
by rewrite /term /act /logit_term !trmx_mul !mulmxA.
Qed.

Theorem logit_term_is_alternating_sum p :
  p \in paths layers ->
  logit_term p = \sum_(S : {set T} | S \subset p) (-1) ^+ (size p - #|S|) *: logit_run S.
Proof.
move=> p_in; rewrite -(inversion_at once logit_term p_in).
by apply: eq_bigr => S _; rewrite logit_run_is_sum_of_its_terms.
Qed.

Theorem logit_terms_are_unique (u : seq T -> 'M[R]_(n, v_out)) :
  (forall S, \sum_(p <- paths layers | all (mem S) p) u p = logit_run S) ->
  {in paths layers, forall p, u p = logit_term p}.
Proof.
move=> sums p p_in; rewrite -(inversion_at once u p_in) (logit_term_is_alternating_sum p_in).
by apply: eq_bigr => S _; rewrite sums.
Qed.

End Logits.

(* And for the scores, where what the queries read and what the keys read are two runs. *)
Section Scores.

Variables (X : 'M[R]_(n, d)) (W_QK : 'M[R]_d).

Definition score_term p q : 'M[R]_n := term p X *m W_QK *m (term q X)^T.
Definition score_run S S' : 'M[R]_n := run S X *m W_QK *m (run S' X)^T.

Lemma score_run_is_sum_of_its_terms S S' :
  score_run S S'
  = \sum_(p <- paths layers | all (mem S) p) \sum_(q <- paths layers | all (mem S') q) score_term p q.
Proof.
rewrite /score_run !run_is_sum_of_its_terms !mulmx_suml; apply: eq_bigr => p _.
by rewrite linear_sum mulmx_sumr.
Qed.

(* A sum on each side, inverted on one side after the other. *)
Lemma inversion_on_both_sides (u : seq T -> seq T -> 'M[R]_n) p q :
  p \in paths layers -> q \in paths layers ->
  \sum_(S : {set T} | S \subset p) (-1) ^+ (size p - #|S|) *:
    (\sum_(S' : {set T} | S' \subset q) (-1) ^+ (size q - #|S'|) *:
      (\sum_(a <- paths layers | all (mem S) a) \sum_(b <- paths layers | all (mem S') b) u a b))
  = u p q.
Proof.
move=> p_in q_in; rewrite -[RHS](inversion_at once (fun a => u a q) p_in); apply: eq_bigr => S _; congr (_ *: _).
transitivity (\sum_(a <- paths layers | all (mem S) a) \sum_(S' : {set T} | S' \subset q)
                (-1) ^+ (size q - #|S'|) *: (\sum_(b <- paths layers | all (mem S') b) u a b)).
  by rewrite exchange_big /=; apply: eq_bigr => S' _; rewrite scaler_sumr.
by apply: eq_bigr => a _; rewrite (inversion_at once (u a) q_in).
Qed.

Theorem score_term_is_alternating_sum p q :
  p \in paths layers -> q \in paths layers ->
  score_term p q
  = \sum_(S : {set T} | S \subset p) (-1) ^+ (size p - #|S|) *:
      (\sum_(S' : {set T} | S' \subset q) (-1) ^+ (size q - #|S'|) *: score_run S S').
Proof.
move=> p_in q_in; rewrite -(inversion_on_both_sides score_term p_in q_in).
apply: eq_bigr => S _; congr (_ *: _); apply: eq_bigr => S' _; by rewrite score_run_is_sum_of_its_terms.
Qed.

Theorem score_terms_are_unique (u : seq T -> seq T -> 'M[R]_n) :
  (forall S S', \sum_(p <- paths layers | all (mem S) p) \sum_(q <- paths layers | all (mem S') q) u p q
                = score_run S S') ->
  {in paths layers &, forall p q, u p q = score_term p q}.
Proof.
move=> sums p q p_in q_in.
rewrite -(inversion_on_both_sides u p_in q_in) (score_term_is_alternating_sum p_in q_in).
apply: eq_bigr => S _; congr (_ *: _); apply: eq_bigr => S' _; by rewrite sums.
Qed.

End Scores.

End Terms.
